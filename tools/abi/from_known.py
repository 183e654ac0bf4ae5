"""What a driver has as a known one has it, where a source says so of the struct."""

from tools.abi.problem import Problem
from tools.abi.release import WHOLE, Release

# Of a kind, where its value names the struct of its parameters; an escape's key does.
_PARAMS = {"class": 1, "control": 1, "uvm": 1}


def add(release: Release, known: Release, name: str) -> None:
    """name: a struct, for its fields and all that takes it; STRUCT.(size), for its size and all that takes
    it; or STRUCT.FIELD. Problem: it is not in `known`, or the driver is known to have it otherwise.
    """
    struct, _, field = name.partition(".")
    with_calls = field in ("", WHOLE)
    found = [
        (kind, key, value)
        for kind, facts in known.facts.items()
        for key, value in facts.items()
        if (kind == "field" and key[0] == struct and field in ("", key[1]))
        or (with_calls and kind == "escape" and key[1] == struct)
        or (with_calls and kind in _PARAMS and value[_PARAMS[kind]] == struct)
    ]
    if not found:
        raise Problem(f"{name}: not in {known.version}")
    for kind, key, value in found:
        if release.facts[kind].setdefault(key, value) != value:
            raise Problem(
                f"{kind} {'.'.join(key)}: {value}, and {release.version} is known to have it otherwise"
            )

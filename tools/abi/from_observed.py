"""Facts of a driver from a recording of programs: numbers and sizes as they were passed."""

from pathlib import Path

from tools.abi.problem import Problem
from tools.abi.release import NONE, WHOLE, Release
from tools.abi.tables import rows


def release(path: Path, version: str, source: str, like: Release) -> Release:
    """path: a table of kind, number, symbol, escape, bytes of the params or nothing, programs. The structs
    are those of `like`, whose facts are complete; what has no name there is left out.
    """
    found = Release(version, source, complete=False)
    for line, row in enumerate(rows(path), start=2):
        if len(row) != 6:
            raise Problem(
                f"{path}:{line}: has {len(row)} columns, not 6: kind, number, symbol, escape, bytes, programs"
            )
        kind, number, symbol, _, size, _ = row
        if kind == "escape":
            structs = [params for name, params in like.facts[kind] if name == symbol]
            sized = [params for params in structs if like.facts[kind][(symbol, params)][1] == size]
            for params in sized or structs[:1]:
                found.facts[kind][(symbol, params)] = (f"{int(number, 16):#x}", size or NONE)
        elif (symbol,) in like.facts.get(kind, {}):
            params = like.facts[kind][(symbol,)][1]
            known = size if size and params != NONE else NONE
            found.facts[kind][(symbol,)] = (f"{int(number, 16):#x}", params, known)
            if known != NONE and (params, WHOLE) in like.facts["field"]:
                found.facts["field"][(params, WHOLE)] = (NONE, known)
    return found

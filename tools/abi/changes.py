"""What a driver changes, and what of it a person has to decide before mgpu serves it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.abi.interface import Interface, Row
from tools.abi.problem import Problem
from tools.abi.release import KINDS, NONE, WHOLE, Key, Release, Value
from tools.abi.store import Store
from tools.abi.tables import Decoded, constants, decoded, escape_structs

WITH_DISPOSITION = ("escape", "uvm")


@dataclass
class Changes:
    """decide: each a thing to do. other: what changed beside what mgpu names."""

    since: str
    decide: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)


def changes(store: Store, release: Release, interface: Interface) -> Changes:
    """Against the newest known driver before it. Problem: there is none."""
    before, _ = store.around(release.version)
    if before is None:
        raise Problem(
            f"{release.version} is older than every known driver, the first of which is {store.versions[0]}: "
            "nothing can be compared with it"
        )
    found = Changes(before.version)
    named: dict[tuple[str, str], Row] = {(row.kind, row.base): row for row in interface.rows}
    fields: dict[Key, Decoded] = {(row.params, row.params_field): row for row in decoded()}
    ours = {constant.expression: constant.name for constant in constants()}
    for kind in KINDS:
        old, new = before.facts[kind], release.facts[kind]
        for key in sorted({*old, *new}):
            if old.get(key) == new.get(key):
                continue
            text = f"{kind} {' '.join(key)}: {_shown(old.get(key))} -> {_shown(new.get(key))}"
            to_do = _to_do(kind, key, old.get(key), new.get(key), named, fields, ours)
            if to_do is None:
                found.other.append(text)
            else:
                found.decide.append(f"{text}: {to_do}")
    found.decide += _without(release, named)
    return found


def _shown(value: Value | None) -> str:
    return "not there" if value is None else " ".join(value)


def _to_do(
    kind: str,
    key: Key,
    old: Value | None,
    new: Value | None,
    named: dict[tuple[str, str], Row],
    fields: dict[Key, Decoded],
    ours: dict[str, str],
) -> str | None:
    if kind == "field":
        return _field_to_do(fields.get(key), key, new)
    if kind == "constant":
        return f"{ours[key[0]]} has to depend on the version" if key[0] in ours else None
    row = named.get(("control" if kind == "privilege" else kind, key[0]))
    if row is None:
        return None
    if kind == "privilege":
        return "see whether tenants and mgpud may still make the call, and say so in docs/nvidia-driver.md"
    if new is None:
        return "its row ends with UNTIL"
    if old is None:
        return "its row begins with SINCE"
    if old[0] != new[0]:
        return "a second row with the new number, SINCE this version, and UNTIL for the old one"
    return "a KEY and BYTES from this version on" if row.size is not None else None


def _field_to_do(row: Decoded | None, key: Key, new: Value | None) -> str | None:
    if row is None:
        return None
    if new is None:
        return f"struct {row.struct} has {row.field}, which ends: the call is refused there, or decoded by version"
    if key[1] == WHOLE:
        return f"struct {row.struct} is decoded: see whether its fields stayed where they were"
    return f"struct {row.struct} has it as {row.field}: decode it by version"


def _without(release: Release, named: dict[tuple[str, str], Row]) -> Iterator[str]:
    """What every driver's row needs, whenever it came."""
    structs = escape_structs()
    for kind in WITH_DISPOSITION:
        for symbol in sorted({key[0] for key in release.facts[kind]}):
            if (kind, symbol) not in named:
                yield f"{kind} {symbol}: has no row: passed, mediated, answered or refused?"
    for symbol, params in sorted(release.facts["escape"]):
        if params == NONE and symbol not in structs:
            yield f"escape {symbol}: no header says its struct: find it in nv.c or escape.c, and add it to escapes.tsv"

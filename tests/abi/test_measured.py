"""Sizes and offsets that others measured of NVIDIA's headers, in tags of which no tree is at hand too: the
facts around a tag hold in it, and interface.def and the structs that the mediator decodes are as it has them.

measured.tsv has one row for as many tags in a row as say the same; measured-by.tsv says who measured which.
"""

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.tsv import read
from tools.abi import interface, layouts, neighbours, parity, store
from tools.abi.release import NONE, WHOLE, Key, Release, Value, order
from tools.abi.store import Store

HERE = Path(__file__).parent
ROWS, SOURCES = read(HERE / "measured.tsv"), read(HERE / "measured-by.tsv")
# Fewer are no comparison: of these structs hardly one was known.
LEAST = 900
Row = dict[str, str]


@functools.cache
def known() -> Store:
    return store.load()


def side(version: str, *, after: bool) -> Release | None:
    """The nearest known driver that is not newer, or not older."""
    found = [
        release
        for release in known().releases.values()
        if (order(release.version) >= order(version) if after else order(release.version) <= order(version))
    ]
    return found[0 if after else -1] if found else None


def facts_of(row: Row, like: Release) -> Iterator[tuple[str, Key, Value]]:
    """What a row says: a field's offset, or a struct's size, which is that of whatever takes the struct."""
    params, field, size = row["params"], row["field"], row["bytes"]
    if field != WHOLE:
        if (params, field) in like.facts["field"]:
            yield "field", (params, field), (row["offset"], like.facts["field"][params, field][1])
        return
    yield "field", (params, WHOLE), (NONE, size)
    for kind in ("class", "control", "uvm"):
        for key, value in like.facts[kind].items():
            if value[1] == params:
                yield kind, key, (value[0], params, size)
    for key, value in like.facts["escape"].items():
        if key[1] == params:
            yield "escape", key, (value[0], size)


def releases(by: str, rows: list[Row]) -> list[Release]:
    source = next(source for source in SOURCES if source["by"] == by)
    found = []
    for tag in source["tags"].split():
        release = Release(tag, source["where"], complete=False)
        like = side(tag, after=False)
        assert like is not None
        for row in rows:
            if row["by"] == by and order(row["since"]) <= order(tag) <= order(row["last"]):
                for kind, key, value in facts_of(row, like):
                    release.facts[kind][key] = value
        found.append(release)
    return found


def differs(by: str, rows: list[Row] = ROWS) -> tuple[int, list[str]]:
    """How many facts were compared, and which are otherwise in the known drivers around a tag."""
    compared, said = 0, []
    for release in releases(by, rows):
        before, after = side(release.version, after=False), side(release.version, after=True)
        assert before is not None
        assert after is not None
        verdict = neighbours.judge(known(), release, (before, after))
        compared += verdict.compared
        said += [f"{release.version}: {text}" for text in verdict.differs]
    return compared, said


def disagrees(rows: list[Row] = ROWS) -> list[str]:
    """Where interface.def and our headers are not as a tag was measured."""
    table, every = interface.read(), store.load()
    for source in SOURCES:
        for release in releases(source["by"], rows):
            if release.version not in known().releases:
                merged = every.releases.get(release.version, release)
                for kind, facts in release.facts.items():
                    merged.facts[kind] |= facts
                every.add(merged)
    said = [*parity.compare(table, every), *layouts.compare(table, every, layouts.measure())]
    return [one.line() for one in said]


def test_facts_are_as_others_measured_them(record_property: Callable[[str, object], None]) -> None:
    total = 0
    for source in SOURCES:
        compared, said = differs(source["by"])
        tags = source["tags"].split()
        record_property(
            "facts", f"{source['where']}: {len(tags)} tags, {compared} compared, {len(said)} differ"
        )
        assert not said, "\n".join(said)
        total += compared
    assert total > LEAST


def test_table_is_as_others_measured_it(record_property: Callable[[str, object], None]) -> None:
    tags = {tag for source in SOURCES for tag in source["tags"].split()} - set(known().releases)
    served = [tag for tag in tags if interface.read().serves(tag)]
    record_property("facts", f"{len(served)} served tags of which no tree is at hand")
    assert len(served) > len(tags) // 2
    assert not disagrees()


@pytest.mark.parametrize("params", ["NV_CHANNEL_ALLOC_PARAMS", "NVOS46_PARAMETERS", "UVM_FREE_PARAMS"])
def test_size_off_by_eight_is_seen(params: str) -> None:
    rows = copy.deepcopy(ROWS)
    for row in rows:
        if row["params"] == params and row["field"] == WHOLE:
            row["bytes"] = str(int(row["bytes"]) + 8)
    assert any(differs(source["by"], rows)[1] for source in SOURCES)
    assert disagrees(rows)

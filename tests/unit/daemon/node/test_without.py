"""What the scheduler does without on a card: said once in the log, and to all that ask."""

from typing import cast

import pytest

from mgpu_cli import render
from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import Chip, Without
from native_sched.daemon.node import sight, without
from tests.unit.arbiter_support import CARDS, FakeEngine


def test_missing_feature_is_logged_once_per_card_with_the_status(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeEngine()
    engine = cast(Engine, fake)
    told = without.Told(engine, CARDS)
    told.look()
    assert capfd.readouterr().err == ""
    fake.lacks = {1: {Without.DISABLE_CHANNELS: 0x56}}
    told.look()
    told.look()
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert 'event=driver-without card=1 what=disable-channels why="RM\'s status 0x56" so=' in said
    assert "16 of a container at most" in said
    fake.lacks[0] = {Without.ENGINE_STATUS: -61}
    told.look()
    assert 'what=engine-status why="No data available"' in capfd.readouterr().err
    assert [line.partition(":")[0] for line in without.lines(engine, CARDS)] == [
        "disable-channels not on GPU 1",
        "engine-status not on GPU 0",
    ]
    assert without.of(engine, 0) == ["engine-status"]


def test_describe_names_features_the_driver_lacks() -> None:
    cards = [{"index": 0, "without": []}, {"index": 1, "without": [without.name(each) for each in Without]}]
    said = [str(text) for _, text in render._without(cards)]
    assert "idle by fetch only" in said
    assert not any(text.startswith("without ") for text in said), "each has words of its own"
    assert {row for row, _ in render._without(cards)} == {"GPU 1:"}


def test_row_for_each_kind_of_card_says_how_its_work_is_seen() -> None:
    fake = FakeEngine()
    engine = cast(Engine, fake)
    [row] = sight.table(engine, CARDS)
    assert row == {
        "cards": [card.index for card in CARDS],
        "chip": "GV100",
        "work": "GP_PUT and GP_GET, and engine status",
        "idle": "engine status",
        "suspended": "DISABLE_CHANNELS",
        "source": "hw_fifo_gv100.h",
    }
    fake.lacks = {0: {Without.ENGINE_STATUS: -61}, 1: {Without.DISABLE_CHANNELS: 0x56}}
    assert [
        (row["cards"], row["work"], row["idle"], row["suspended"]) for row in sight.table(engine, CARDS)
    ] == [
        ([0], "GP_PUT and GP_GET", "RM's samples", "DISABLE_CHANNELS"),
        ([1], "GP_PUT and GP_GET, and engine status", "engine status", "runlist"),
    ]


@pytest.mark.parametrize(
    ("chip", "said"),
    [
        (
            Chip(b"GB202", b"hw_runlist_gb20c.h", 0),
            ("GB202", "GP_PUT", "hw_runlist_gb20c.h, and RM's variants"),
        ),
        (Chip(b"GB20C", b"hw_runlist_gb20c.h", 0), ("GB20C", "GP_PUT", "hw_runlist_gb20c.h")),
        (Chip(b"", b"", 1), ("unknown", "GP_PUT and GP_GET", "none")),
    ],
)
def test_chip_s_row_names_its_source(chip: Chip, said: tuple[str, str, str]) -> None:
    row = sight._sight(chip, {Without.ENGINE_STATUS} if not chip.name else ())
    assert (row["chip"], row["work"].partition(",")[0], row["source"]) == said

"""A recorded libcuda through filter, mediator and simulated card: what succeeded natively succeeds here."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.recordings.answers import answered, compared, other_answers
from tests.recordings.playing import came_to, played
from tests.recordings.script import (
    CONTEXT_ENDS,
    H200,
    H200_VERSION,
    INIT_ENDS,
    RECORDING,
    VERSION,
    WITH_PARAMS,
    WITH_PARAMS_VERSION,
    Card,
    Composer,
    Row,
    differences,
    expected,
    of_cards,
    recorded,
)
from tests.support import arbiter
from tests.support.arbiter import Arbiter, until_empty
from tests.support.programs import Programs

DRIVER = f"driver-version={VERSION}"
OPTIONS = (f"driver-version={WITH_PARAMS_VERSION}", "rm-call-us=0")
PARAMS_SIZE_AT = 0x18  # of NVOS54
Change = Callable[[list[Row]], list[Row]]


@contextmanager
def a_driver(count: int) -> Iterator[Arbiter]:
    with arbiter.running(f"titan-rtx:{count}", sim_options=(DRIVER, "rm-call-us=0")) as mgpu:
        yield mgpu


def replayed(mgpu: Arbiter, built: Programs, rows: Sequence[Row]) -> tuple[dict[int, str], Composer]:
    """What the calls of the rows came to, by row."""
    out, composer = played(mgpu, built, rows)
    return came_to(out), composer


def wrong(found: dict[int, str], rows: Sequence[Row], version: str = VERSION) -> list[str]:
    differs = differences(version)
    return [
        f"{row.row}: {row.call}: {found.get(row.row)}, expected {wanted}"
        for row in rows
        for wanted in [expected(row, differs)]
        if wanted != found.get(row.row)
    ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_recorded_success_succeeds_mediated(private_host: None, built: Programs, count: int) -> None:
    rows = of_cards(recorded(RECORDING), count)
    with a_driver(count) as mgpu:
        found, composer = replayed(mgpu, built, rows)
        amiss = wrong(found, rows)
        assert not amiss, "\n".join(amiss)
        until_empty(mgpu)
    print(f"{len(rows)} calls, {composer.filled} fields filled in that were not recorded")
    for key, (result, reason) in differences().items():
        print(f"{key}: {result}: {reason}")


@pytest.mark.parametrize(
    ("version", "path", "profile"),
    [
        # The nearest to the GA106 that was recorded.
        pytest.param(WITH_PARAMS_VERSION, WITH_PARAMS, "a10", id="ga106"),
        pytest.param(H200_VERSION, H200, "h200", id="h200"),
    ],
)
def test_recorded_answers_are_those_of_mediated_calls(
    private_host: None, built: Programs, version: str, path: Path, profile: str
) -> None:
    rows, reasons = recorded(path), other_answers(version)
    with arbiter.running(profile, sim_options=OPTIONS) as mgpu:
        out, composer = played(mgpu, built, rows, "answers")
        found = came_to(out)
        amiss = wrong(found, rows, version)
        assert not amiss, "\n".join(amiss)
        alike = [row for row in rows if found[row.row] == expected(row, {})]
        others, same = compared(alike, answered(out), composer.cards[0], reasons)
        assert not others, "\n".join(others)
        until_empty(mgpu)
    print(
        f"{len(rows)} calls, {composer.filled} fields filled in that were not recorded, {same} words equal"
    )
    for call, of in reasons.items():
        print(f"{call}: {'; '.join(dict.fromkeys(of.values()))}")


@pytest.mark.parametrize(
    ("answer", "differing", "seen"),
    [
        pytest.param(b"\x08", {}, [], id="the same"),
        pytest.param(b"\x09", {}, ["11: NV_ESC_RM_CONTROL 0x1f0: 0x9 at 0x0, recorded 0x8"], id="another"),
        pytest.param(b"\x09", {"0": "a reason"}, [], id="another, with a reason"),
        pytest.param(
            b"\x08", {"0": "a reason"}, ["NV_ESC_RM_CONTROL 0x1f0: 0 is as it was recorded"], id="none"
        ),
    ],
)
def test_another_answer_has_a_reason(answer: bytes, differing: dict[str, str], seen: list[str]) -> None:
    rows = [row for row in recorded(WITH_PARAMS) if row.row == 11]
    reasons = {rows[0].call: differing} if differing else {}
    others, _ = compared(rows, {11: answer}, Card(7, bytes(16)), reasons)
    assert others == seen


def changed(row: int, **fields: object) -> Change:
    def change(rows: list[Row]) -> list[Row]:
        return [replace(one, **cast(Any, fields)) if one.row == row else one for one in rows]

    return change


def larger(row: int, by: int) -> Change:
    """The parameters of a control, and what it says of their size."""

    def change(rows: list[Row]) -> list[Row]:
        (of,) = [one for one in rows if one.row == row]
        words = tuple(
            (at, f"{of.params_bytes + by:#x}" if at == PARAMS_SIZE_AT else word) for at, word in of.words
        )
        return changed(row, params_bytes=of.params_bytes + by, words=words)(rows)

    return change


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        pytest.param(lambda rows: [row for row in rows if row.row != 392], {393, 685}, id="a refused event"),
        pytest.param(changed(51, status=(0x1C, 0)), {51}, id="another status"),
        pytest.param(larger(50, 8), {50}, id="a size off by 8"),
    ],
)
def test_seeded_mistake_is_seen(private_host: None, built: Programs, change: Change, seen: set[int]) -> None:
    rows = change(of_cards(recorded(RECORDING), 1))
    with a_driver(1) as mgpu:
        found, _ = replayed(mgpu, built, rows)
    assert {int(line.partition(":")[0]) for line in wrong(found, rows)} >= seen


def test_starts_take_as_long_as_the_card_does(private_host: None, built: Programs) -> None:
    options = (DRIVER, "init-us=20000", "context-us=30000")
    with arbiter.running("titan-rtx", sim_options=options) as mgpu:
        rows = of_cards(recorded(RECORDING), 1)
        said = json.loads(played(mgpu, built, rows, "2", str(INIT_ENDS), str(CONTEXT_ENDS))[0])
        assert len(said["call_us"]) == 476
        assert said["init_us"] >= 20000
        assert said["context_us"] >= 30000
        until_empty(mgpu)

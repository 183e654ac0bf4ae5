"""A run on several pairs: a guest that breaks ends its own tests alone."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab import pairs, runner
from lab.__main__ import PLAYED, judge, main
from lab.claims import Claim
from lab.collection import Named
from lab.error import LabError
from lab.guests import GuestSpec
from lab.play import compare
from lab.verdicts import FAILED, MADE_UP, PASSED, Verdict


def test_guest_that_breaks_leaves_the_other_pairs_and_what_it_had_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tests = [Named(f"lab.tests.file:{name}", Claim((name,), (), (), 60, False)) for name in ("one", "two")]

    def run(spec: GuestSpec, some: Sequence[Named], say: Callable[[str], None]) -> Iterator[Verdict]:
        for test in some:
            if spec.pair == pairs.PAIRS[0] and test is tests[1]:
                raise LabError("the guest's kernel died")
            yield Verdict(test.name, PASSED, "", test.claim.rows)

    monkeypatch.setattr(runner, "run", run)
    said: list[str] = []
    assert judge([GuestSpec(pair, Path("card")) for pair in pairs.PAIRS[:2]], tests, said.append) == 1
    first, second = (pair.name for pair in pairs.PAIRS[:2])
    assert said[:-1] == [
        f"lab: {first}, 1 x ga102",
        "lab: the guest's kernel died",
        f"lab: {second}, 1 x ga102",
        f"lab: {first}, ga102 does not decide: two",
    ]
    assert said[-1].startswith("lab: 1 rows decided on each of 2 pairs and chips")


class FakeGuest:
    reports: Sequence[Path] = ()

    def __init__(self) -> None:
        self.machine, self.asked = self, list[str | int]()

    def ask(self, message: dict[str, Any], within_s: float) -> dict[str, Any]:
        self.asked.append(message.get("attach", message.get("run", "")))
        return {"guest_s": [0.5], "failed": None}

    def end(self, within_s: float) -> None:
        self.asked.append("end")


def test_cards_are_let_go_for_a_test_alone_and_attached_again_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guest = FakeGuest()
    monkeypatch.setattr(runner, "running", lambda spec: nullcontext(guest))
    alone = Claim((), (), (), 60, False, alone=True)
    tests = [Named(name, dataclasses.replace(alone, alone=name in "bc")) for name in ("a", "b", "c", "d")]
    list(runner.run(GuestSpec(pairs.PAIRS[0], Path("card"), cards=2), tests, lambda line: None))
    assert guest.asked == [2, "a", 0, "b", "c", 2, "d", "end"]


def ran(monkeypatch: pytest.MonkeyPatch, chip: str, state: str, differ: compare.Differences) -> list[str]:
    """What is said of a run with the played scripts and a test that is not for TU104."""
    played = Named(f"lab.tests.{PLAYED.replace('.', ':')}", Claim((), (), (), 60, False))
    elsewhere = Named("lab.tests.file:one", Claim((), (), (), 60, False, not_on=(("tu104", "no reserve"),)))

    def run(spec: GuestSpec, some: Sequence[Named], say: Callable[[str], None]) -> Iterator[Verdict]:
        for test in some:
            say(test.name)
            yield Verdict(test.name, state, "", ())

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr("lab.__main__._simulated", lambda: differ)
    said: list[str] = []
    status = judge([GuestSpec(pairs.PAIRS[0], Path("card"), chip)], [played, elsewhere], said.append)
    return [*said, f"ended with {status}"]


def listed() -> compare.Differences:
    return {row.key: (row.simulated, row.nvidia) for row in compare.known()}


def test_open_differences_are_counted_where_both_drivers_were_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    *_, last, ended = ran(monkeypatch, "ga102", MADE_UP, listed())
    assert last.endswith(f", {sum(row.owner == 'open' for row in compare.known())} differences open")
    assert ended == "ended with 0"
    *_, last, _ = ran(monkeypatch, "ga102", FAILED, listed())
    assert last.endswith(", differences not played"), "NVIDIA's driver answered otherwise than is recorded"


def test_difference_that_is_not_in_the_table_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("objects.handles", "a call", 1)
    *_, line, last, ended = ran(monkeypatch, "ga102", PASSED, {**listed(), key: ("0x0", "0x1f")})
    assert line == f"lab: the simulated card answers otherwise than differences.tsv says: {key}"
    assert last.endswith(f", {sum(row.owner == 'open' for row in compare.known()) + 1} differences open")
    assert ended == "ended with 1"


def test_chips_that_a_test_is_not_for_are_said_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ran(monkeypatch, "tu104", PASSED, listed())
    assert "lab: file.one is not for tu104: no reserve" in said
    assert "file.one" not in said
    assert "file.one" in ran(monkeypatch, "ga102", PASSED, listed())


def test_modules_of_one_kernel_are_not_put_into_every_pairs_guest(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--every-pair", "--modules", str(tmp_path)])
    assert (done.exit_code, done.output) == (
        1,
        "lab: --modules fit one kernel, not every pair's: name it by --pair\n",
    )

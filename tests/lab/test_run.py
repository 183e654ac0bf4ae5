"""A run on several pairs: a guest that breaks ends its own tests alone."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab import pairs, runner
from lab.__main__ import judge, main
from lab.claims import Claim
from lab.collection import Named
from lab.error import LabError
from lab.guests import GuestSpec
from lab.verdicts import PASSED, Verdict


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


def test_chips_that_a_test_is_not_for_are_said_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Named("lab.tests.file:one", Claim((), (), (), 60, False, not_on=(("tu104", "no reserve"),)))
    ran: list[str] = []

    def run(spec: GuestSpec, some: Sequence[Named], say: Callable[[str], None]) -> Iterator[Verdict]:
        ran.extend(spec.chip for _ in some)
        yield Verdict(one.name, PASSED, "", ())

    monkeypatch.setattr(runner, "run", run)
    said: list[str] = []
    specs = [GuestSpec(pairs.PAIRS[0], Path("card"), chip) for chip in ("tu104", "ga102")]
    assert judge(specs, [one], said.append) == 0
    assert ran == ["ga102"]
    assert said[0] == "lab: file.one is not for tu104: no reserve"


def test_modules_of_one_kernel_are_not_put_into_every_pairs_guest(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--every-pair", "--modules", str(tmp_path)])
    assert (done.exit_code, done.output) == (
        1,
        "lab: --modules fit one kernel, not every pair's: name it by --pair\n",
    )

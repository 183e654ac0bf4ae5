"""Runs named tests in a guest and says what each decides."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby

from lab.collection import Named
from lab.guests import GuestSpec, Running, running
from lab.tests.answers import not_asked
from lab.verdicts import Answer, Verdict, judged

# The guest's time is slower than the wall clock's on a busy host, so a test's own limit comes first.
PATIENCE = 6
DOWN_S = 60
ATTACH_S = 400


def run(spec: GuestSpec, tests: Sequence[Named], say: Callable[[str], None]) -> Iterator[Verdict]:
    """Its last line says how long each file of tests took, and what comes before and after them."""
    took, laps = [], [time.monotonic()]

    def lap(what: str) -> None:
        laps.append(time.monotonic())
        took.append(f"{what} {laps[-1] - laps[-2]:.1f} s")

    with running(spec) as guest:
        lap("made and up")
        # Before any test: what the GSP says as a card is attached falls into none.
        attached = guest.machine.ask({"attach": spec.cards}, ATTACH_S)
        lap("attached")
        held = spec.cards
        for file, some in groupby(tests, lambda test: test.name.partition(".")[0]):
            for test in some:
                wanted = 0 if test.claim.alone else spec.cards
                if wanted != held:
                    guest.machine.ask({"attach": wanted}, ATTACH_S)
                    held = wanted
                verdict = _verdict(guest, test, not_asked(spec.pair.driver.branch))
                say(verdict.line())
                yield verdict
            lap(file)
        guest.machine.end(DOWN_S)
    lap("off")
    say(f"lab: {', '.join(took)}; an attach took {max(attached['guest_s']):.2f} s of the guest's time")


def _verdict(guest: Running, test: Named, unasked: Collection[str]) -> Verdict:
    marks = [report.stat().st_size for report in guest.reports]
    limit_s = test.claim.limit_s
    done = guest.machine.ask({"run": test.place, "limit_s": limit_s}, limit_s * PATIENCE)
    held = [report.read_bytes() for report in guest.reports]
    before = [answer for mark, text in zip(marks, held, strict=True) for answer in _answers(text[:mark])]
    during = [answer for mark, text in zip(marks, held, strict=True) for answer in _answers(text[mark:])]
    return judged(test.name, test.claim, done["failed"], during, before, unasked)


def _answers(report: bytes) -> list[Answer]:
    """A card writes a line before the guest can see the answer."""
    lines = map(json.loads, report.splitlines())
    return [Answer(line["answer"], line["made_up"]) for line in lines]

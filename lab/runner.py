"""Runs named tests in a guest and says what each decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from lab.collection import Named
from lab.guests import Running, Wish, running
from lab.verdicts import Answer, Verdict, judged

# The guest's time is slower than the wall clock's on a busy host, so a test's own limit comes first.
PATIENCE = 6
DOWN_S = 60
ATTACH_S = 400


def run(wish: Wish, tests: Sequence[Named], say: Callable[[str], None]) -> list[Verdict]:
    verdicts = []
    with running(wish) as guest:
        # Before any test: what the GSP says as a card is attached falls into none.
        guest.machine.ask({"attach": wish.cards}, ATTACH_S)
        for test in tests:
            verdict = _verdict(guest, test)
            say(verdict.line())
            verdicts.append(verdict)
        guest.machine.end(DOWN_S)
    return verdicts


def _verdict(guest: Running, test: Named) -> Verdict:
    marks = [report.stat().st_size for report in guest.reports]
    limit_s = test.claim.limit_s
    done = guest.machine.ask({"run": test.place, "limit_s": limit_s}, limit_s * PATIENCE)
    held = [report.read_bytes() for report in guest.reports]
    before = [answer for mark, text in zip(marks, held, strict=True) for answer in _answers(text[:mark])]
    during = [answer for mark, text in zip(marks, held, strict=True) for answer in _answers(text[mark:])]
    return judged(test.name, test.claim, done["failed"], during, before)


def _answers(report: bytes) -> list[Answer]:
    """A card writes a line before the guest can see the answer."""
    lines = map(json.loads, report.splitlines())
    return [Answer(line["answer"], line["made_up"]) for line in lines]

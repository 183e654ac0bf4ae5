"""Runs named tests in a guest and says what each decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.collection import Named
from lab.guests import Running, Wish, running
from lab.verdicts import Answer, Verdict, judged

# The guest's time is slower than the wall clock's on a busy host, so a test's own limit comes first.
PATIENCE = 6
DOWN_S = 60


def run(wish: Wish, tests: Sequence[Named], say: Callable[[str], None]) -> list[Verdict]:
    verdicts = []
    with running(wish) as guest:
        for test in tests:
            verdict = _verdict(guest, test)
            say(verdict.line())
            verdicts.append(verdict)
        guest.machine.end(DOWN_S)
    return verdicts


def _verdict(guest: Running, test: Named) -> Verdict:
    before = _answers(guest.report)
    limit_s = test.claim.limit_s
    done = guest.machine.ask({"run": test.place, "limit_s": limit_s}, limit_s * PATIENCE)
    return judged(test.name, test.claim, done["failed"], _answers(guest.report)[len(before) :], before)


def _answers(report: Path) -> list[Answer]:
    """What the GSP has answered so far. The card writes a line before the guest can see the answer."""
    if not report.exists():
        return []
    whole = report.read_bytes().rpartition(b"\n")[0]
    return [Answer(line["answer"], line["made_up"]) for line in map(json.loads, whole.splitlines())]

"""What a test's end says of the rows that it names. Pure: made-up answers never decide a row.

The card writes a line for each answer of its GSP: {"answer": NAME, "made_up": BOOL, "source": TEXT}. NAME is
a control's or RPC's name in NVIDIA's headers.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.claims import Claim

PASSED, FAILED, MADE_UP = "passed", "FAILED", "made up"
NAMED = 4


@dataclass(frozen=True)
class Answer:
    name: str
    made_up: bool


@dataclass(frozen=True)
class Verdict:
    """state: PASSED, FAILED, or MADE_UP: passed, but on answers that nobody's hardware gave."""

    test: str
    state: str
    why: str
    rows: tuple[str, ...]

    @property
    def decided(self) -> tuple[str, ...]:
        return self.rows if self.state == PASSED else ()

    def line(self) -> str:
        rows = f"{len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        return f"lab: {self.state:<7} {self.test} ({rows})" + (f": {self.why}" if self.why else "")


def judged(
    test: str,
    claim: Claim,
    failed: str | None,
    during: Sequence[Answer],
    before: Sequence[Answer],
    not_asked: Collection[str] = (),
) -> Verdict:
    """during: what the GSP answered while the test ran; before: since the guest started. not_asked: what this
    driver need not ask, of the answers that do not matter.
    """
    if failed is not None:
        return Verdict(test, FAILED, failed.strip().splitlines()[-1], claim.rows)
    whatever = dict(claim.whatever)
    absent = set(not_asked) - {answer.name for answer in during}
    needless = sorted(whatever.keys() - _made_up(during) - absent)
    if needless:
        return Verdict(
            test,
            FAILED,
            f"says that it does not matter what is made up, and is not: {_list(needless)}",
            claim.rows,
        )
    unknown = sorted(set(claim.rests_on) - {answer.name for answer in (*before, *during)})
    if unknown:
        return Verdict(test, FAILED, f"rests on what the GSP was not asked: {_list(unknown)}", claim.rows)
    doubtful = (_made_up(during) - whatever.keys()) | (_made_up(before) & set(claim.rests_on))
    if doubtful:
        return Verdict(test, MADE_UP, f"rests on {_list(sorted(doubtful))}", claim.rows)
    return Verdict(test, PASSED, "", claim.rows)


def decided(verdicts: Iterable[Verdict]) -> set[str]:
    return {row for verdict in verdicts for row in verdict.decided}


def disagreements(found: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """A line for each row that one pair and chip decides and another does not."""
    everywhere = set[str]().union(*map(decided, found.values()))
    return [
        f"lab: {pair} does not decide: {row}"
        for pair, verdicts in found.items()
        for row in sorted(everywhere - decided(verdicts))
    ]


def last_line(found: Collection[Sequence[Verdict]], differences: int | None) -> str:
    """The rows that every pair and chip decides. differences: None: not played."""
    rows = set.intersection(*map(decided, found))
    on = f" on each of {len(found)} pairs and chips" if len(found) > 1 else ""
    told = "differences not played" if differences is None else f"{differences} differences open"
    return f"lab: {len(rows)} rows decided{on}, {told}"


def _made_up(answers: Iterable[Answer]) -> set[str]:
    return {answer.name for answer in answers if answer.made_up}


def _list(names: Sequence[str]) -> str:
    """All where they are few; the report has the others."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")

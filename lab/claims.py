"""What a test in the guest decides, said beside it.

    @decides("NVIDIA's nodes can be polled, nvidia-uvm's cannot")
    def polls() -> None:
        assert ...

A row is the first column of a row in docs, word for word. The test passes by returning, and asserts what
the row says.
"""

from collections.abc import Callable
from dataclasses import dataclass

Test = Callable[[], None]


@dataclass(frozen=True)
class Claim:
    """rows: what the test decides.

    rests_on: answers of the GSP, given before the test, of which it looks at the content.
    whatever: made-up answers to which the test's own calls lead, each with the reason why no other answer
    would change what it asserts. limit_s: the guest's time, after which the test has failed. long: `make
    lab` leaves it out, but for a sample of those. cards: how many it takes; more than one are a guest of
    their own. since: the oldest branch of the driver that it is for; drivers: the versions, if not all;
    not_on: chips that it is not for, each with the reason. alone: nobody else has a card open. It comes
    after the others that are as long.
    """

    rows: tuple[str, ...]
    rests_on: tuple[str, ...]
    whatever: tuple[tuple[str, str], ...]
    limit_s: float
    long: bool
    cards: int = 1
    sample: bool = False
    since: int = 0
    not_on: tuple[tuple[str, str], ...] = ()
    alone: bool = False
    drivers: tuple[str, ...] = ()


def decides(
    *rows: str,
    rests_on: tuple[str, ...] = (),
    whatever: dict[str, str] | None = None,
    limit_s: float = 60,
    long: bool = False,
    cards: int = 1,
    sample: bool = False,
    since: int = 0,
    not_on: dict[str, str] | None = None,
    alone: bool = False,
    drivers: tuple[str, ...] = (),
) -> Callable[[Test], Test]:
    reasons = tuple((whatever or {}).items())
    chips = tuple((not_on or {}).items())
    claim = Claim(rows, rests_on, reasons, limit_s, long, cards, sample, since, chips, alone, drivers)

    def named(test: Test) -> Test:
        test.claim = claim  # type: ignore[attr-defined]
        return test

    return named


def claim_of(test: object) -> Claim | None:
    found = getattr(test, "claim", None)
    return found if isinstance(found, Claim) else None

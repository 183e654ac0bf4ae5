"""What absolute preemption looks like in the simulated card's own account, whatever started the
containers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sim import cards
from sim.cards import Span
from tests.support.arbiter import Arbiter
from tests.support.load import runs, time_of
from tests.support.waiting import until

MS = 1_000_000
# Rules are tested, figures are the bench's: what a noisy machine may add to any instant. Less than a busy
# time lasts.
NOISE_MS = 400
BURST_REQUESTS = 600


def row(mgpu: Arbiter, container: str) -> dict[str, Any] | None:
    """The container as mgpud lists it; None once nothing of it is left."""
    return next((one for one in mgpu.containers() if one["container_id"] == container), None)


def pid_of(mgpu: Arbiter, container: str) -> int:
    """Pid of the container's first process, once it is there; it may be gone again soon."""
    found: list[int] = []

    def bound() -> bool:
        found[:] = [pid for pid in ((row(mgpu, container) or {}).get("pid"),) if pid]
        return bool(found)

    until(bound, f"{container} is bound")
    return found[0]


def working(mgpu: Arbiter, container: str, card: int = 0) -> int:
    """Waits until the card has run some of the container's first process; its pid."""
    pid = pid_of(mgpu, container)
    until(lambda: time_of(mgpu, pid, card) > 0, f"{container} runs on GPU {card}")
    return pid


@dataclass(frozen=True)
class Mark:
    """A moment in a card's history."""

    mgpu: Arbiter
    card: int
    entry: int

    def spans(self) -> list[Span]:
        """What the graphics engine did since; AssertionError when some of it is lost."""
        found = cards.timeline(self.mgpu.root / "sim" / "admin.sock", self.card, self.entry)
        assert not found.lost
        return [span for span in found.spans if span.engine == "graphics"]


def mark(mgpu: Arbiter, card: int = 0) -> Mark:
    """Now."""
    return Mark(mgpu, card, cards.timeline(mgpu.root / "sim" / "admin.sock", card).next)


def busy_times(mine: Sequence[Span], hold_ms: float) -> list[tuple[int, int]]:
    """(from, to) of each time without a pause as long as the hold: a client may be kept from its
    processor."""
    found: list[tuple[int, int]] = []
    for span in mine:
        if found and span.start_ns - found[-1][1] < hold_ms * MS:
            found[-1] = found[-1][0], span.end_ns
        else:
            found.append((span.start_ns, span.end_ns))
    return found


def preempted(
    found: Sequence[Span], *, online: int, offline: Collection[int], hold_ms: float
) -> tuple[int, int]:
    """How long into any of online's busy times offline was on the card at most, and how long after the last
    of them it was back, in ns. AssertionError unless offline ran before and after.

    Pids.
    """
    busy = busy_times(runs(list(found), online), hold_ms)
    theirs = [span for pid in offline for span in runs(list(found), pid)]
    assert busy, "online never ran"
    end = busy[-1][1]
    after = [span.start_ns for span in theirs if span.start_ns >= end]
    assert any(span.start_ns < busy[0][0] for span in theirs), "offline did not run before online"
    assert after, "offline did not come back"
    on = [
        min(span.end_ns, to) - since
        for since, to in busy
        for span in theirs
        if span.start_ns < to and span.end_ns > since
    ]
    return max(on, default=0), min(after) - end


def came_back(since: Mark, *, online: int, offline: Collection[int]) -> list[Span]:
    """Waits until offline has run after online's last work; the card's history till then."""

    def back() -> bool:
        found = since.spans()
        end = max(span.end_ns for span in runs(found, online))
        return any(span.start_ns >= end for pid in offline for span in runs(found, pid))

    until(back, "offline is back on the GPU")
    return since.spans()

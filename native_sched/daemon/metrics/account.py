"""What the containers' counters come to over time: they only rise, they do not depend on when they are
scraped, and what a container did stays in its cards' sums when it is gone.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import SchedState
from native_sched.daemon.grants.grants import Grant
from oci_specs.request import Qos

# share_ratio is over at least so long, and a tick more at most.
WINDOW_S = 10.0
NS_PER_S = 1e9


@dataclass
class Seen:
    """One container. What was charged may be given back later, but a counter does not fall: it waits."""

    run_ns: int = 0
    suspended_ns: int = 0
    video_ns: int = 0
    preemptions: int = 0
    busy: bool = False
    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, state: SchedState) -> int:
        """Returns by how much run_ns rose."""
        rose = max(0, int(state.run_ns) - self.run_ns)
        self.run_ns += rose
        self.suspended_ns = max(self.suspended_ns, state.suspended_ns)
        self.video_ns = max(self.video_ns, state.video_ns)
        self.preemptions = max(self.preemptions, state.preemptions)
        self.busy = bool(state.busy)
        return rose

    def sample(self, now_s: float) -> None:
        self.samples.append((now_s, self.run_ns))
        while len(self.samples) > 1 and now_s - self.samples[1][0] >= WINDOW_S:
            self.samples.popleft()

    def share(self, now_s: float) -> float:
        """Of the card's time since the window began, 0 to 1."""
        if not self.samples or now_s <= self.samples[0][0]:
            return 0.0
        since_s, run_ns = self.samples[0]
        return min(1.0, (self.run_ns - run_ns) / ((now_s - since_s) * NS_PER_S))


class Account:
    """Called at every poll of a container, and right before it goes; on the event loop's thread."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._seen: dict[int, Seen] = {}
        self.card_run_ns: dict[tuple[int, Qos], int] = {}

    def look(self, grant: Grant) -> Seen:
        """The container as it is now."""
        seen = self._seen.get(grant.tenant)
        if seen is None:
            seen = self._seen[grant.tenant] = Seen()
            seen.sample(self._clock())
        try:
            state = self._engine.sched(grant.tenant)
        except OSError:  # it has no card, or nothing is scheduled
            return seen
        rose = seen.take(state)
        for card in grant.cards if rose else ():
            key = card.index, grant.qos
            self.card_run_ns[key] = self.card_run_ns.get(key, 0) + rose
        return seen

    def tick(self, grants: Iterable[Grant]) -> None:
        """Notes where each container is, and forgets those that are gone."""
        now_s = self._clock()
        living = set()
        for grant in grants:
            self.look(grant).sample(now_s)
            living.add(grant.tenant)
        for tenant in self._seen.keys() - living:
            del self._seen[tenant]

    def share(self, seen: Seen) -> float:
        return seen.share(self._clock())

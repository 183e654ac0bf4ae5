"""Typical requests of this cluster's pods, learned from those that came."""

from collections import Counter
from typing import NamedTuple

from cluster.scheduler.pods import Pod
from oci_specs.request import Request

# Pods that are remembered: once twice as many came, each counts half. A day of a large cluster.
_REMEMBERED = 20_000
# Kinds that are weighed at most, the most frequent ones: what a decision costs grows with them.
_KINDS_MAX = 512


# So many pods are believed to come that name one model, each model as often as any other, before any was
# seen: of what has come this is a share that shrinks. Without it the nodes of rare models go first in a young
# cluster.
_SUPPOSED = 200


class Kind(NamedTuple):
    """Containers that are alike: what each asks of cards, its pod's CPU for it, the models that it
    may use.
    """

    request: Request
    cpu_milli: int
    models: frozenset[str] | None


class Mix:
    """Counts of kinds. version: goes up when they have changed enough to be weighed anew."""

    def __init__(self) -> None:
        self.version = 0
        self._counts: Counter[Kind] = Counter()
        self._arrived = 0
        self._ended = 0
        self._other_cpu_milli = 0
        self._next = 1

    def arrived(self, pod: Pod) -> None:
        """A pod has come; each is told once, whether it finds a place or not."""
        requests = [request for request in pod.requests if request.count is not None]
        for request in requests:
            self._counts[Kind(request, pod.cpu_milli // len(requests), pod.models)] += 1
        if not requests:
            self._other_cpu_milli += pod.cpu_milli
            return
        self._arrived += 1
        if self._arrived >= 2 * _REMEMBERED:
            self._counts = Counter({kind: count // 2 for kind, count in self._counts.items() if count > 1})
            self._arrived //= 2
            self._ended //= 2
            self._other_cpu_milli //= 2
            self._next = 0
        if self._arrived >= self._next:
            self.version += 1
            # An eighth more each time, and seldom enough to be cheap: what a kind weighs changes slowly.
            self._next = self._arrived + max(8, min(500, self._arrived // 8))

    def ended(self, pod: Pod) -> None:
        """A pod that had a place is gone."""
        self._ended += any(request.count is not None for request in pod.requests)

    @property
    def turnover(self) -> float:
        """Of the pods that came as many have ended (0 to 1): 0 in a cluster that only fills."""
        return min(1.0, self._ended / max(1, self._arrived))

    @property
    def supposed(self) -> float:
        """Share of what comes (0 to 1) that is believed to name one model, any of them."""
        return _SUPPOSED / (_SUPPOSED + self._arrived)

    @property
    def other_cpu_milli(self) -> float:
        """CPU of the pods that ask for no GPU, for each one that asks."""
        return self._other_cpu_milli / max(1, self._arrived)

    def kinds(self) -> list[tuple[Kind, float]]:
        """The most frequent kinds, each with its share of what came (0 to 1)."""
        found = self._counts.most_common(_KINDS_MAX)
        total = sum(count for _, count in found)
        return [(kind, count / total) for kind, count in found]

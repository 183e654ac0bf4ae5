"""The offer of memory that is lent: it moves with every allocation, and each word of it is a write to the
API server that all schedulers read.
"""

from collections import deque
from dataclasses import replace

from cluster.resources.inventory import Card, Inventory

# Online may soon use again as much as it has used within this time: the offer falls at once, and rises late.
WINDOW_S = 60.0
# So long after what was said last an offer that falls is said; one that only rises waits for the window.
# Three writes a minute from each of 5,000 nodes are half of what their kubelets' leases are.
PAUSE_S = 20.0
# Use is rounded up to whole steps: the largest power of two that is an 80th of the card at most, or this.
STEP_LEAST_MIB = 256


class Lent:
    """calm() is told every inventory, and returns the one to publish."""

    def __init__(self) -> None:
        # By UUID: times and amounts, each larger than all that came after it.
        self._peaks: dict[str, deque[tuple[float, int]]] = {}
        self._published: Inventory | None = None
        self._published_s = 0.0

    def calm(self, told: Inventory, now_s: float) -> Inventory:
        """now_s: of a steady clock."""
        calm = replace(told, cards=tuple(self._calm(card, now_s) for card in told.cards))
        published = self._published
        if published is not None and now_s - self._published_s < _pause_s(published, calm):
            return published
        if calm != published:
            self._published, self._published_s = calm, now_s
        return calm

    def _calm(self, card: Card, now_s: float) -> Card:
        if card.lending is None:
            self._peaks.pop(card.uuid, None)
            return card
        peaks = self._peaks.setdefault(card.uuid, deque())
        while peaks and peaks[0][0] <= now_s - WINDOW_S:
            peaks.popleft()
        while peaks and peaks[-1][1] <= card.lending.online_mib:
            peaks.pop()
        peaks.append((now_s, card.lending.online_mib))
        step_mib = _step_mib(card)
        online_mib = min(-(-peaks[0][1] // step_mib) * step_mib, card.memory_mib)
        return replace(card, lending=replace(card.lending, online_mib=online_mib))


def _pause_s(published: Inventory, calm: Inventory) -> float:
    if published.without_lending() != calm.without_lending():
        return 0
    pairs = zip(published.cards, calm.cards, strict=True)
    falls = any(now.reclaimable_mib < before.reclaimable_mib for before, now in pairs)
    return PAUSE_S if falls else WINDOW_S


def _step_mib(card: Card) -> int:
    return max(STEP_LEAST_MIB, 1 << (card.memory_mib // 80).bit_length() - 1)

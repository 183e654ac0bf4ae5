"""The offer of memory that is lent: it moves with every allocation, and each word of it is a write to the
API server that all schedulers read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from cluster.resources.inventory import Card, Inventory

# Online may soon use again as much as it has used within this time: the offer falls at once, and rises late.
WINDOW_S = 60.0
# Use is rounded up to whole steps.
STEP_MIB = 256
# kubelet's own nodeStatusUpdateFrequency: no more is said in between.
PAUSE_S = 10.0


class Lent:
    """calm() is told every inventory, and returns the one to publish."""

    def __init__(self) -> None:
        # By UUID: times and amounts, each larger than all that came after it.
        self._peaks: dict[str, deque[tuple[float, int]]] = {}
        self._said: Inventory | None = None
        self._said_s = 0.0

    def calm(self, told: Inventory, now_s: float) -> Inventory:
        """now_s: of a steady clock."""
        calm = replace(told, cards=tuple(self._calm(card, now_s) for card in told.cards))
        said = self._said
        if (
            said is not None
            and now_s - self._said_s < PAUSE_S
            and said.without_lending() == calm.without_lending()
        ):
            return said
        if calm != said:
            self._said, self._said_s = calm, now_s
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
        steps = -(-peaks[0][1] // STEP_MIB)
        online_mib = min(steps * STEP_MIB, card.memory_mib)
        return replace(card, lending=replace(card.lending, online_mib=online_mib))

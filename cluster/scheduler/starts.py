"""Pods that are bound and not yet taken in by kubelet, one at a time for each node.

kubelet knows at once that a device plugin is gone, and refuses each pod that it is sent for good
(`UnexpectedAdmissionError`). The node's allocatable follows seconds later, and a node where pods fail looks
emptier with each of them: all that waits would be sent there. So a pod is sent once kubelet has taken in the
one before it, and a node where one was refused is left alone until its allocatable has followed. A kubelet
that is away answers for none, and refuses all of them when it is back, before its plugins are.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

# kubelet answers in tenths of a second. What looks for a node leaves one aside that takes longer; what was
# sent there waits so many times as long.
ANSWER_S = 3.0
PATIENCE = 3
# More than the API server waits before it calls the node of such a kubelet not ready (50 s).
SILENT_S = 70.0
# More than kubelet takes to write the node's status (nodeStatusUpdateFrequency, 10 s).
BAR_S = 12.0
_LOOK_S = 0.02


class Starts:
    """clock: of seconds that do not step. answer_s: how long kubelet has to answer for a pod."""

    def __init__(self, clock: Callable[[], float], answer_s: float = ANSWER_S) -> None:
        self._clock = clock
        self._answer_s = answer_s
        # Pods by UID, each with its node, and since when an answer is waited for.
        self._open: dict[str, tuple[str, float]] = {}
        self._barred: dict[str, float] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def turn(self, uid: str, node: str) -> AsyncGenerator[None]:
        """Waits until kubelet has answered for every pod that was sent there, or for long enough."""
        async with self._turns[node]:
            while 0.0 <= self._waited_s(node) < self._answer_s * PATIENCE:
                await asyncio.sleep(_LOOK_S)
            self._open[uid] = node, self._clock()
            yield

    def _waited_s(self, node: str) -> float:
        """For an answer of that node; below 0 where none is waited for."""
        now_s = self._clock()
        self._open = {uid: each for uid, each in self._open.items() if each[1] + SILENT_S > now_s}
        return max(
            (now_s - since_s for there, since_s in self._open.values() if there == node), default=-1.0
        )

    def answered(self, uid: str) -> None:
        """kubelet has taken it in, or it is gone."""
        self._open.pop(uid, None)

    def refused(self, node: str) -> None:
        """kubelet has no devices for a pod that was sent there."""
        self._barred[node] = self._clock() + BAR_S

    def barred(self) -> dict[str, str]:
        """The nodes that nothing is to be sent to now, each with the reason."""
        self._barred = {node: until_s for node, until_s in self._barred.items() if until_s > self._clock()}
        silent = {node for node, _ in self._open.values() if self._waited_s(node) > self._answer_s > 0}
        return {
            node: f"kubelet of node {node} has not answered for the pod that it was sent last"
            for node in silent
        } | {
            node: f"kubelet of node {node} refused a pod a moment ago: it has no devices to give"
            for node in self._barred
        }

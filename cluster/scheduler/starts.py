"""Pods that are bound and not yet taken in by kubelet, one at a time for each node.

kubelet knows at once that a device plugin is gone, and refuses each pod that it is sent for good
(`UnexpectedAdmissionError`). The node's allocatable follows seconds later, and a node where pods fail looks
emptier with each of them: all that waits would be sent there. So a pod is sent once kubelet has taken in the
one before it, and a node where one was refused is left alone until its allocatable has followed.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

# kubelet answers in tenths of a second; for one that is slower nothing waits any longer.
ANSWER_S = 3.0
# More than kubelet takes to write the node's status (nodeStatusUpdateFrequency, 10 s).
BAR_S = 12.0
_LOOK_S = 0.02


def refused_there(node: str) -> str:
    return f"kubelet of node {node} refused a pod a moment ago: it has no devices to give"


class Starts:
    """clock: of seconds that do not step. answer_s: how long kubelet has to answer for a pod."""

    def __init__(self, clock: Callable[[], float], answer_s: float = ANSWER_S) -> None:
        self._clock = clock
        self._answer_s = answer_s
        # Pods by UID, each with its node, and until when an answer is waited for.
        self._open: dict[str, tuple[str, float]] = {}
        self._barred: dict[str, float] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def turn(self, uid: str, node: str) -> AsyncGenerator[None]:
        """Waits until kubelet has answered for every pod that was sent there; then sends this one."""
        async with self._turns[node]:
            while self._is_open(node):
                await asyncio.sleep(_LOOK_S)
            self._open[uid] = node, self._clock() + self._answer_s
            yield

    def _is_open(self, node: str) -> bool:
        now_s = self._clock()
        self._open = {uid: each for uid, each in self._open.items() if each[1] > now_s}
        return any(there == node for there, _ in self._open.values())

    def answered(self, uid: str) -> None:
        """kubelet has taken it in, or it is gone."""
        self._open.pop(uid, None)

    def refused(self, node: str) -> None:
        """kubelet has no devices for a pod that was sent there."""
        self._barred[node] = self._clock() + BAR_S

    def bars(self, node: str) -> bool:
        until_s = self._barred.get(node)
        if until_s is not None and until_s <= self._clock():
            del self._barred[node]
        return node in self._barred

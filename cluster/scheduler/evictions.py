"""Room for a pod of higher priority where the stock scheduler sees that none is lacking: its sums suffice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.api.kinds import EVICTION
from cluster.node.told import Told
from cluster.scheduler.books import Held, Node
from cluster.scheduler.preemption import of_lower_priority, victims
from cluster.scheduler.reading import Known
from cluster.scheduler.state import State

# A pod that a budget keeps is not asked for again so soon.
KEPT_SECONDS = 60.0
# Nodes where room can be made, of which the best is taken.
_ROOMS_MAX = 32


class Evictions:
    """Pods are ended by the Eviction API, which keeps to PodDisruptionBudgets. The cards are set aside at once."""

    def __init__(self, state: State, api: Api, told: Told, clock: Callable[[], float]) -> None:
        self._state = state
        self._api = api
        self._told = told
        self._clock = clock
        self._kept_until_s: dict[str, float] = {}
        self._running: set[asyncio.Task[None]] = set()

    def make_room(self, known: Known, names: Iterable[str]) -> str | None:
        """A pod was refused on these nodes. The one where others end for it from now on; None where none do, or
        where cards are set aside for it already.
        """
        pod, now_s = known.pod, self._clock()
        if not known.preempts or self._state.reservations.of(pod.uid) is not None:
            return None
        self._kept_until_s = {uid: until for uid, until in self._kept_until_s.items() if until > now_s}
        rooms: list[tuple[tuple[int, int, str], Node, list[Held]]] = []
        for name in names:
            node = self._state.scheduler.books.nodes.get(name)
            ending = None if node is None else self._ending(known, node)
            if node is not None and ending:
                cost = max(each.pod.priority for each in ending), len(ending), name
                rooms.append((cost, node, ending))
                if len(rooms) == _ROOMS_MAX:
                    break
        if not rooms:
            return None
        _, node, ending = min(rooms, key=lambda each: each[0])
        self._state.reservations.keep(pod, node, [each.pod.uid for each in ending], now_s)
        task = asyncio.get_running_loop().create_task(self._evict(known, node.name, ending))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return node.name

    def _ending(self, known: Known, node: Node) -> list[Held] | None:
        lower = [
            each
            for each in of_lower_priority(known.pod, node)
            if each.pod.containers and each.pod.uid not in self._kept_until_s
        ]
        if not lower:
            return None
        allowed = partial(self._state.scheduler.open_to, known.pod, node=node)
        found = victims(known.pod, node, lower, (), allowed)
        return None if found is None else [node.pods[uid] for uid in found]

    async def _evict(self, known: Known, node: str, ending: Iterable[Held]) -> None:
        for victim in ending:
            seen = self._state.known.get(victim.pod.uid)
            if seen is None or seen.terminating:
                continue
            pod, who = victim.pod, f"{victim.pod.namespace}/{victim.pod.name}"
            try:
                await self._api.create(
                    EVICTION,
                    {
                        "metadata": {"name": pod.name, "namespace": pod.namespace},
                        "deleteOptions": {"preconditions": {"uid": pod.uid}},
                    },
                )
            except ApiProblem as problem:
                if problem.is_gone:
                    continue
                self._kept_until_s[pod.uid] = self._clock() + KEPT_SECONDS
                self._told.say(f"eviction {pod.uid}", f"pod {who} is not evicted: {problem}")
                self._state.reservations.forget(known.pod.uid)
                return
            self._told.say(
                f"eviction {pod.uid}",
                f"pod {who} is evicted from node {node} for {known.pod.namespace}/{known.pod.name}, "
                f"whose priority is {known.pod.priority}",
            )

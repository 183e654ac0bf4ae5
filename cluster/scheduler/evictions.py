"""Room for a pod of higher priority where the stock scheduler sees that none is lacking: its sums suffice."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial

from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.api.event import event, pod_reference
from cluster.api.kinds import EVENT, EVICTION, POD
from cluster.process.conditions import Conditions
from cluster.scheduler.occupancy import Held, Node
from cluster.scheduler.pods import Pod
from cluster.scheduler.preemption import of_lower_priority, victims
from cluster.scheduler.reading import Known
from cluster.scheduler.state import State

# Long enough for the stock scheduler's own preemption, which follows a refusal at once, to be heard of.
YIELD_SECONDS = 0.5
# A pod that a budget keeps is not asked for again so soon.
KEPT_SECONDS = 60.0
# Nodes where room can be made, of which the best is taken.
_ROOMS_MAX = 32
_CONTROLLER = "mgpu.dev/scheduler"


class Evictions:
    """Pods are ended by the Eviction API, which keeps to PodDisruptionBudgets. The cards are set aside at
    once.
    """

    def __init__(
        self,
        state: State,
        api: Api,
        conditions: Conditions,
        clock: Callable[[], float],
        begun: Callable[[], None],
        instance: str,
    ) -> None:
        """begun: called each time that room is made. instance: which extender this is, for events."""
        self._instance = instance
        self._state = state
        self._api = api
        self._conditions = conditions
        self._clock = clock
        self._begun = begun
        self._kept_until_s: dict[str, float] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def refused(self, known: Known, names: Sequence[str]) -> None:
        """These nodes have no card for the pod. Unless the stock scheduler makes room elsewhere, it is made
        here.
        """
        uid = known.pod.uid
        if known.preempts and not known.nominated and uid not in self._running:
            task = asyncio.get_running_loop().create_task(self._make_room(known, names))
            self._running[uid] = task
            task.add_done_callback(lambda _: self._running.pop(uid, None))

    def left(self, uid: str) -> None:
        """The stock scheduler makes room for the pod itself."""
        if uid in self._running:
            self._running[uid].cancel()

    async def _make_room(self, known: Known, names: Sequence[str]) -> None:
        await asyncio.sleep(YIELD_SECONDS)
        pod, now_s = known.pod, self._clock()
        seen = self._state.known.get(pod.uid)
        if seen is None or seen.node or seen.nominated or pod.uid in self._state.assumed:
            return
        if self._state.reservations.of(pod.uid) is not None:
            return
        self._kept_until_s = {uid: until for uid, until in self._kept_until_s.items() if until > now_s}
        rooms: list[tuple[tuple[int, int, str], Node, list[Held]]] = []
        for name in names:
            node = self._state.scheduler.occupancy.nodes.get(name)
            leaving = None if node is None else self._ending(known, node)
            if node is not None and leaving:
                cost = max(each.pod.priority for each in leaving), len(leaving), name
                rooms.append((cost, node, leaving))
                if len(rooms) == _ROOMS_MAX:
                    break
        if rooms:
            _, node, leaving = min(rooms, key=lambda each: each[0])
            self._state.reservations.keep(pod, node, [each.pod.uid for each in leaving], now_s)
            self._begun()
            await self._evict(known, node.name, leaving)

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

    async def _evict(self, known: Known, node: str, leaving: Iterable[Held]) -> None:
        pod = known.pod
        # While its victims end there, the stock scheduler does not have others ended elsewhere.
        await self._nominate(pod, node)
        for victim in leaving:
            seen = self._state.known.get(victim.pod.uid)
            if seen is None or seen.terminating:
                continue
            who = f"{victim.pod.namespace}/{victim.pod.name}"
            try:
                await self._api.create(
                    EVICTION,
                    {
                        "metadata": {"name": victim.pod.name, "namespace": victim.pod.namespace},
                        "deleteOptions": {"preconditions": {"uid": victim.pod.uid}},
                    },
                )
            except ApiProblem as problem:
                if problem.is_gone:
                    continue
                self._kept_until_s[victim.pod.uid] = self._clock() + KEPT_SECONDS
                self._conditions.set(f"eviction {victim.pod.uid}", f"pod {who} is not evicted: {problem}")
                self._state.reservations.forget(pod.uid)
                await self._nominate(pod, None)
                await self._tell(
                    pod, victim.pod, "NotPreempted", f"pod {who} keeps its GPU on node {node}: {problem}"
                )
                return
            self._conditions.set(
                f"eviction {victim.pod.uid}",
                f"pod {who} is evicted from node {node} for {pod.namespace}/{pod.name}, "
                f"whose priority is {pod.priority}",
            )

            await self._tell(
                victim.pod,
                pod,
                "Preempted",
                f"by {pod.namespace}/{pod.name} of priority {pod.priority} on node {node}, whose GPU it needs",
            )
            await self._tell(
                pod, victim.pod, "Preempting", f"pod {who} ends on node {node}, whose GPU this one gets"
            )

    async def _tell(self, regarding: Pod, related: Pod, reason: str, note: str) -> None:
        """As the stock scheduler does, so that the owner of each finds it with `kubectl describe`."""
        try:
            await self._api.create(
                EVENT,
                event(
                    f"{regarding.name[:200]}.{uuid.uuid4().hex[:16]}",
                    pod_reference(regarding.namespace, regarding.name, regarding.uid),
                    time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                    reason=reason,
                    action="Preempting",
                    note=note,
                    type="Normal",
                    related=pod_reference(related.namespace, related.name, related.uid),
                    reportingController=_CONTROLLER,
                    reportingInstance=self._instance,
                ),
            )
        except ApiProblem as problem:
            self._conditions.set("events", f"an eviction is not told to its pods: {problem}")

    async def _nominate(self, pod: Pod, node: str | None) -> None:
        try:
            await self._api.merge(
                POD, pod.name, {"status": {"nominatedNodeName": node}}, pod.namespace, status=True
            )
        except ApiProblem as problem:
            self._conditions.set("nominate", f"pod {pod.namespace}/{pod.name} is not nominated: {problem}")

"""Kube-scheduler's extender protocol (k8s.io/kube-scheduler/extender/v1), as JSON.

The Go types have no JSON tags, so that members are called as their fields. Nodes are names only: the
scheduler's configuration says nodeCacheCapable.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from cluster.scheduler.binding import Binder
from cluster.scheduler.counters import Counters
from cluster.scheduler.evictions import Evictions
from cluster.scheduler.lease import Lease
from cluster.scheduler.members import items, members
from cluster.scheduler.reading import Known
from cluster.scheduler.scheduler import Filtered
from cluster.scheduler.state import State
from cluster.scheduler.together import Together
from oci_specs.refusal import Refusal

Answer = dict[str, Any]
# Pods of which it is remembered which nodes they were offered.
_OFFERED_MAX = 4096
_ELSEWHERE = "its gang has a place elsewhere"


class Extender:
    """Methods named as the verbs; each raises Refusal, or ApiProblem, where it cannot be answered now."""

    def __init__(
        self,
        state: State,
        together: Together,
        binder: Binder,
        evictions: Evictions,
        lease: Lease,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._together = together
        self._binder = binder
        self._evictions = evictions
        self._lease = lease
        self._counters = counters
        self._clock = clock
        self._offered: OrderedDict[str, set[str]] = OrderedDict()

    async def filter(self, args: Mapping[str, Any]) -> Answer:
        """ExtenderArgs to ExtenderFilterResult.

        Of the nodes that fit only the best one is left, by its exact score: the ten whole numbers of
        prioritize would make most nodes equal. A pod with preferences of its own among nodes gets all, so
        that the stock scheduler's other plugins have their say. A node that was offered and where the pod
        was not bound then is offered again after the others.

        Nodes that are refused are unresolvable by the stock scheduler: it has found room for their sums, so
        that it would find no pod worth ending there. Those that have to end for a card are found here.
        """
        await self._hold()
        known = self._state.asked(_pod(args))
        names = _names(args)
        if known.refusal is not None:
            return _filtered([], dict.fromkeys(names, known.refusal.line()))
        assumed = self._state.assumed.get(known.pod.uid)
        if assumed is not None:
            elsewhere = f"mgpu: its binding to node {assumed.node} is under way"
            return _filtered(
                [name for name in names if name == assumed.node],
                {name: elsewhere for name in names if name != assumed.node},
            )
        is_gang = await self._together.is_gang(known)
        bars = self._state.starts.barred() if known.pod.containers else {}
        barred = [name for name in names if name in bars]
        open_names = [name for name in names if name not in barred]
        if is_gang:
            node, why = await self._together.place(known, open_names)
            if not node and barred:
                raise Refusal("not-now", bars[barred[0]], "the scheduler tries again")
            if not node:
                self._counters.refused.inc()
            others = [name for name in names if name != node]
            return _filtered([node] if node else [], dict.fromkeys(others, f"mgpu: {why or _ELSEWHERE}"))
        found = self._state.scheduler.filter(known.pod, open_names)
        if found.fits:
            return _filtered(
                self._narrowed(known, found),
                {name: f"mgpu: {why}" for name, why in found.refused.items()}
                | {name: f"mgpu: {bars[name]}" for name in barred},
            )
        if barred:
            # After an error the stock scheduler asks again by itself: nothing tells it when a node is open.
            if there := self._state.scheduler.filter(known.pod, barred).fits:
                raise Refusal("not-now", bars[there[0]], "the scheduler tries again")
            found = self._state.scheduler.filter(known.pod, names)
        self._counters.refused.inc()
        self._state.reservations.refused(known.pod, names, self._clock())
        self._evictions.refused(known, names)
        return _filtered([], {name: f"mgpu: {why}" for name, why in found.refused.items()})

    async def prioritize(self, args: Mapping[str, Any]) -> list[Answer]:
        """ExtenderArgs to HostPriorityList."""
        await self._hold()
        scores = self._state.scheduler.score(self._state.asked(_pod(args)).pod, _names(args))
        return [{"Host": name, "Score": score} for name, score in scores]

    async def preempt(self, args: Mapping[str, Any]) -> Answer:
        """ExtenderPreemptionArgs to ExtenderPreemptionResult: of the stock scheduler's nodes those where the
        pod gets cards, with those who have to end for these beside those who end anyway.
        """
        await self._hold()
        offered = members(args, "NodeNameToMetaVictims")
        uids = {name: [str(pod.get("UID")) for pod in items(offered[name], "Pods")] for name in offered}
        known = self._state.asked(_pod(args))
        pod = known.pod
        # A pod that ends for one pod of a gang may end for nothing.
        is_gang = await self._together.is_gang(known)
        found = {} if is_gang else self._state.scheduler.preempt(pod, uids)
        if any(found.values()):
            self._evictions.left(pod.uid)
        return {
            "NodeNameToMetaVictims": {
                name: {
                    "Pods": [{"UID": uid} for uid in victims],
                    "NumPDBViolations": offered[name].get("NumPDBViolations", 0),
                }
                for name, victims in found.items()
                if victims
            }
        }

    async def bind(self, args: Mapping[str, Any]) -> Answer:
        """ExtenderBindingArgs to ExtenderBindingResult."""
        await self._hold()
        namespace, name, uid, node = (
            str(args.get(member, "")) for member in ("PodNamespace", "PodName", "PodUID", "Node")
        )
        known = self._state.find(uid)
        if known is not None and await self._together.is_gang(known):
            await self._together.come(known, node)
            # The lease has to cover what begins now, and the wait may have been long.
            await self._hold()
            await self._together.come(known, node)
        await self._binder.bind(namespace, name, uid, node)
        self._offered.pop(uid, None)
        return {"Error": ""}

    async def _hold(self) -> None:
        if not self._state.is_ready:
            raise Refusal("not-ready", "nodes and pods are not listed yet", "the scheduler tries again")
        await self._lease.hold()
        self._state.pass_time(self._clock())

    def _narrowed(self, known: Known, found: Filtered) -> list[str]:
        if known.prefers or not known.pod.containers:
            return found.fits
        offered = self._offered.setdefault(known.pod.uid, set())
        if len(self._offered) > _OFFERED_MAX:
            self._offered.popitem(last=False)
        left = [name for name in found.fits if name not in offered] if offered else found.fits
        if not left:
            offered.clear()
            left = found.fits
        best = self._state.scheduler.best(known.pod, left, found.rows if left is found.fits else None)
        if best is None:
            return left
        offered.add(best)
        return [best]


def _filtered(fits: list[str], refused: dict[str, str]) -> Answer:
    return {"NodeNames": fits, "FailedNodes": {}, "FailedAndUnresolvableNodes": refused, "Error": ""}


def _pod(args: Mapping[str, Any]) -> Mapping[str, Any]:
    found = members(args, "Pod")
    if not members(found, "metadata").get("uid"):
        raise Refusal("bad-call", "the call names no pod", "see that URL and verbs are kube-scheduler's")
    return found


def _names(args: Mapping[str, Any]) -> list[str]:
    names = args.get("NodeNames")
    if not isinstance(names, list):
        raise Refusal("bad-call", "the call names no nodes", "set nodeCacheCapable: true for this extender")
    return [str(name) for name in names]

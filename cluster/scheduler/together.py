"""Pods of a gang, which the stock scheduler brings one by one: none is bound before all have come."""

import asyncio
from collections.abc import Callable, Sequence

from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.scheduler.gangs import Member
from cluster.scheduler.groups import Group
from cluster.scheduler.reading import Known
from cluster.scheduler.state import State
from oci_specs.refusal import Refusal

_LOOK_S = 0.02
# Objects that say how large a gang is are not asked for again so soon.
_SIZE_S = 10.0
_AGAIN = "the scheduler tries again"


class Together:
    def __init__(self, state: State, api: Api, clock: Callable[[], float]) -> None:
        self._state = state
        self._api = api
        self._clock = clock
        self._sizes: dict[str, tuple[int, float]] = {}
        # Nodes that pods may be on, of those that may not be on the same as the others of their gang.
        self._own: dict[str, list[str]] = {}

    async def is_gang(self, known: Known) -> bool:
        """Whether the pod has cards only together with others. ApiProblem where that is not known."""
        return known.group is not None and bool(known.pod.containers) and await self._size(known.group) > 1

    async def _size(self, group: Group) -> int:
        if group.size is not None:
            return group.size
        size, until_s = self._sizes.get(group.said, (0, 0.0))
        if self._clock() < until_s:
            return size
        for kind in group.kinds:
            try:
                value = await self._api.get(kind, group.name, group.namespace)
            except ApiProblem as problem:
                if problem.is_gone:
                    continue
                raise
            now_s = self._clock()
            self._sizes = {said: each for said, each in self._sizes.items() if each[1] > now_s}
            self._sizes[group.said] = group.counted(value), now_s + _SIZE_S
            return self._sizes[group.said][0]
        raise Refusal("not-now", f"{group.said} is not there, and says how many pods it takes", _AGAIN)

    async def place(self, known: Known, names: Sequence[str]) -> tuple[str, str]:
        """The pod's node, or why there is none. Refusal where its gang is not all there."""
        assert known.group is not None
        size, gangs, uid = await self._size(known.group), self._state.gangs, known.pod.uid
        gang = _gang(known)
        place = gangs.of(uid)
        if place is not None and place.node in names:
            return place.node, ""
        if place is not None:
            self._own = {each: kept for each, kept in self._own.items() if each in self._state.known}
            self._own[uid] = list(names)
            gangs.give_back(
                gang, f"{gang}: placed anew, since node {place.node} is closed to one of its pods"
            )
        there, waiting, begun = self._parts(known)
        # A pod that takes the place of one that has ended does not wait for those that are done.
        if len(there) < size and not begun:
            raise Refusal("not-now", f"{gang} has {len(there)} of the {size} pods that it takes", _AGAIN)
        members = [
            Member(
                pod=each.pod,
                names=list(names) if each.pod.uid == uid else self._own.get(each.pod.uid, names),
            )
            for each in waiting
        ]
        needed = min(len(waiting), max(1, size - (len(there) - len(waiting))))
        why = gangs.place(gang, members, needed, self._state.labels(), self._clock(), begun=begun)
        place = gangs.of(uid)
        if place is None:
            return "", why or f"{gang}: the others have a place, and there is no more room"
        return place.node, ""

    async def resume(self) -> None:
        """After another extender has placed pods: what it began comes before what is asked for next."""
        for known in self._state.of_gangs():
            _, waiting, begun = self._parts(known)
            if not (begun and waiting):
                continue
            try:
                if not await self.is_gang(waiting[0]):
                    continue
            except (ApiProblem, Refusal):
                continue
            # Meanwhile the watch may have brought more.
            _, waiting, begun = self._parts(known)
            labels = self._state.labels()
            # The stock scheduler says which of them each may be on when it asks about that pod.
            members = [Member(pod=each.pod, names=list(labels)) for each in waiting]
            gangs, gang = self._state.gangs, _gang(known)
            if begun:
                gangs.place(gang, members, len(members), labels, self._clock(), begun=True)

    def _parts(self, known: Known) -> tuple[list[Known], list[Known], bool]:
        """The pods of its gang, those that wait for GPUs, and whether others have theirs."""
        there = self._state.gang(known)
        placed = {each.pod.uid for each in there if each.node or each.pod.uid in self._state.assumed}
        asking = [each for each in there if each.pod.containers]
        waiting = [each for each in asking if each.pod.uid not in placed]
        return there, waiting, len(waiting) < len(asking)

    async def come(self, known: Known, node: str) -> None:
        """Until all of its gang have come. Refusal where they did not, or where it has no place there."""
        gangs, uid = self._state.gangs, known.pod.uid
        if known.group is None or known.node or uid in self._state.assumed:
            return
        while (place := gangs.of(uid)) is not None and place.node == node:
            # Each time anew: the gang may have been placed anew, and this pod where it was.
            gangs.came(uid)
            if gangs.is_whole(uid):
                return
            await asyncio.sleep(_LOOK_S)
            self._state.pass_time(self._clock())
        raise Refusal(
            "not-bound",
            f"pod {known.pod.namespace}/{known.pod.name} is not bound: {gangs.why(_gang(known))}",
            _AGAIN,
        )


def _gang(known: Known) -> str:
    assert known.group is not None
    return known.group.said

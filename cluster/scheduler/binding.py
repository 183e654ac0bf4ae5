"""Bindings: a pod gets its node and its cards in one write, or neither."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

from cluster.api.client import Api, Object
from cluster.api.errors import ApiProblem
from cluster.api.kinds import BINDING, POD
from cluster.process.conditions import Conditions
from cluster.scheduler.pods import Placed, Pod
from cluster.scheduler.reading import Known, annotation_of
from cluster.scheduler.state import Assumed, State
from oci_specs.refusal import Refusal
from oci_specs.vocabulary import PLACEMENT

# Less than the stock scheduler waits for an extender (httpTimeout in cluster/manifests/scheduler.yaml), and
# than a lease outlasts what it covers (lease.py).
CALL_SECONDS = 10.0
ASK_SECONDS = 5.0
# The API server ends a request after a minute by itself (--request-timeout): what it has not done then it
# never does.
DOUBT_SECONDS = 65.0


class Binder:
    """One for a state. Between choosing cards and counting them nothing is awaited, so that none are chosen
    twice. written: hears how many seconds each write took the API server and the way there.
    """

    def __init__(
        self,
        state: State,
        api: Api,
        conditions: Conditions,
        clock: Callable[[], float],
        written: Callable[[float], None],
    ) -> None:
        self._state = state
        self._api = api
        self._conditions = conditions
        self._clock = clock
        self._written = written

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Refusal in one line where the pod is not bound, or where it is not known whether it is."""
        known = self._state.find(uid)
        if known is None:
            raise _not_bound(namespace, name, "it is gone", "nothing")
        before = self._state.assumed.get(uid)
        if node in (known.node, before.node if before is not None and before.is_made else None):
            return
        assumed = self._assume(known, node)
        placement = json.dumps(annotation_of(assumed.placed, known.lenders), separators=(",", ":"))
        # A doubtful binding may be the API server's already: it is not taken back for what came after it.
        async with nullcontext() if before is not None else self._turn(known.pod, node):
            begun_s = self._clock()
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._api.create(BINDING, _binding(known.pod, node, placement))
            except (ApiProblem, TimeoutError) as problem:
                await self._find_out(known.pod, node, assumed, problem)
            self._written(self._clock() - begun_s)
        self._state.made(uid)
        self._conditions.clear("binding", "pods are bound again")

    @asynccontextmanager
    async def _turn(self, pod: Pod, node: str) -> AsyncGenerator[None]:
        """Once kubelet has answered for the pods before. Refusal where it refused one, or says nothing."""
        if not pod.containers:
            yield
            return
        async with self._state.starts.turn(pod.uid, node):
            if why := self._state.starts.barred().get(node):
                self._state.withdraw(pod.uid)
                raise _not_bound(pod.namespace, pod.name, why, "the scheduler tries again")
            yield

    def _assume(self, known: Known, node: str) -> Assumed:
        pod, before = known.pod, self._state.assumed.get(known.pod.uid)
        if known.node:
            raise _not_bound(pod.namespace, pod.name, f"it is on node {known.node}", "nothing")
        if before is not None:
            if before.doubtful_until_s is None or before.node != node:
                raise _not_bound(
                    pod.namespace, pod.name, f"its binding to {before.node} is under way", "try again later"
                )
            # The same once more: whichever of the two calls the API server takes, the cards are these.
            assumed = replace(before, doubtful_until_s=None)
        else:
            place = self._state.gangs.of(pod.uid)
            if place is not None and known.group is not None:
                assumed = Assumed(node=node, placed=place.placed, gang=known.group.said)
            else:
                assumed = Assumed(node=node, placed=self._state.scheduler.choose(pod, node))
        self._state.assume(pod, assumed)
        return assumed

    async def _find_out(
        self, pod: Pod, node: str, assumed: Assumed, problem: ApiProblem | TimeoutError
    ) -> None:
        """Returns where the pod is bound as it should be; else raises a Refusal."""
        passing = not isinstance(problem, ApiProblem) or problem.is_passing
        refused = isinstance(problem, ApiProblem) and (problem.code == 429 or not passing)
        why = str(problem) or "the API server does not answer"
        found = await self._now(pod)
        if found is not None and found.get("metadata", {}).get("uid") == pod.uid:
            there = found.get("spec", {}).get("nodeName")
            annotations = found.get("metadata", {}).get("annotations") or {}
            if there == node and _same(annotations.get(PLACEMENT), assumed.placed):
                return
            if there:
                # Another scheduler was faster; the watch brings what it decided.
                self._state.withdraw(pod.uid)
                raise _not_bound(pod.namespace, pod.name, f"it is on node {there} already", "nothing")
        if refused:
            self._state.withdraw(pod.uid)
        else:
            self._state.doubt(pod.uid, self._clock() + DOUBT_SECONDS)
        if passing:
            self._conditions.set("binding", f"pods are not bound for now: {why}; the scheduler tries again")
        raise _not_bound(pod.namespace, pod.name, why, "the scheduler tries again")

    async def _now(self, pod: Pod) -> Object | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._api.get(POD, pod.name, pod.namespace)
        except (ApiProblem, TimeoutError):
            return None


def _binding(pod: Pod, node: str, placement: str) -> Object:
    """The API server copies the annotations into the pod as it sets its node, if the UID is still
    this one.
    """
    return {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.name,
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": {PLACEMENT: placement},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def _same(text: str | None, placed: Placed) -> bool:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return False
    return isinstance(found, dict) and all(found.get(name) == list(uuids) for name, uuids in placed.items())


def _not_bound(namespace: str, name: str, why: str, hint: str) -> Refusal:
    return Refusal("not-bound", f"pod {namespace}/{name} is not bound: {why}", hint)

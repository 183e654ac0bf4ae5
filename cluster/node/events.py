"""mgpud's pod events, handed on to the API server: `kubectl describe pod` shows them."""

import asyncio
from collections import deque
from typing import Any

from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.api.event import event, pod_reference
from cluster.api.kinds import EVENT, POD
from cluster.node.mgpud import PodEvent
from cluster.node.node import Node
from oci_specs.refusal import Refusal

LOOK_S = 1.0
# While the API server is away; the oldest go first.
WAITING_MAX = 256
_NORMAL = frozenset({"GPUPolicyChanged", "GPUMemoryRestored"})
_CONTROLLER = "mgpu.dev/node"


async def run(node: Node, api: Api) -> None:
    """For ever. mgpud limits how many there are; each is posted once, over restarts too."""
    since = 0
    waiting: deque[PodEvent] = deque(maxlen=WAITING_MAX)
    while True:
        try:
            since, new = await node.mgpud.events(since)
            waiting.extend(new)
        except Refusal:
            pass  # Node.follow() says that mgpud is away
        try:
            while waiting:
                await _post(node, api, waiting[0])
                waiting.popleft()
            node.conditions.clear("events", "pod events are posted again")
        except ApiProblem as problem:
            node.conditions.set("events", f"pod events are not posted: {problem}")
            if not problem.is_passing:
                waiting.popleft()
        await asyncio.sleep(LOOK_S)


async def _post(node: Node, api: Api, happened: PodEvent) -> None:
    try:
        pod = await api.get(POD, happened.pod, happened.namespace)
        await api.create(EVENT, _object(node.name, happened, pod["metadata"].get("uid", "")))
    except ApiProblem as problem:
        # Posted before, or its namespace is gone.
        if not (problem.is_conflict or problem.is_gone):
            raise


def _object(node: str, happened: PodEvent, uid: str) -> dict[str, Any]:
    regarding = pod_reference(happened.namespace, happened.pod, uid)
    return event(
        # The same event has the same name, so that it is there once.
        f"{happened.pod[:200]}.mgpu-{happened.number:x}",
        regarding | {"fieldPath": f"spec.containers{{{happened.container}}}"},
        time=happened.time,
        reason=happened.kind,
        action="Share",
        note=f"{happened.container}: {happened.text}",
        type="Normal" if happened.kind in _NORMAL else "Warning",
        reportingController=_CONTROLLER,
        reportingInstance=node,
    )

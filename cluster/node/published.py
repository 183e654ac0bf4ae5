"""This node's GPUs in the API server: the inventory as an annotation, that mgpud serves as a label,
and what kubelet does not count as the node's capacity.
"""

import asyncio
from contextlib import suppress
from typing import Any

from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.api.kinds import NODE
from cluster.node.node import Node
from cluster.resources import table
from cluster.resources.inventory import ANNOTATION, Inventory

# mgpu's RuntimeClass selects nodes by it: mgpud serves here.
SERVING = "mgpu.dev/serving"
# The handler of mgpu's RuntimeClass, as the container engine calls it.
HANDLER = "mgpu"
# How long mgpud has to answer before its label of an earlier time is taken away.
FIRST_S = 3.0
# A node that is made anew, and a kubelet that forgets it, leave nothing of it.
LOOK_S = 60.0
RETRY_S = 5.0
# How long the last write may take, and how long pods that were bound before it are on their way to kubelet.
LEAVE_S, SENT_S = 5.0, 1.0
_SCALES = {"k": 10**3, "M": 10**6, "G": 10**9}


async def run(node: Node, api: Api) -> None:
    """Until it is cancelled: writes what is not there, and takes the label away while mgpud does not
    serve.
    """
    seen, wait_s = 0, FIRST_S
    while True:
        # wait_for() loses a cancellation that comes with the change.
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                seen = await node.changed(seen)
        try:
            is_whole = await publish(node, api)
            node.conditions.clear("published", f"node {node.name} is written again")
            wait_s = LOOK_S if is_whole else RETRY_S
        except ApiProblem as problem:
            node.conditions.set("published", f"node {node.name} is not written: {problem}")
            wait_s = RETRY_S


async def leave(node: Node, api: Api) -> None:
    """Before the process ends: kubelet would refuse for good what is sent to a node without its plugin."""
    node.is_leaving = True
    with suppress(TimeoutError, ApiProblem):
        async with asyncio.timeout(LEAVE_S):
            await publish(node, api)
            await asyncio.sleep(SENT_S)


async def publish(node: Node, api: Api) -> bool:
    """Writes what differs, in one write to the status, which takes labels and annotations too. False while
    the label waits for the container engine. ApiProblem as the API server has it.
    """
    found = await api.get(NODE, node.name)
    metadata: dict[str, Any] = {}
    is_known = _knows_handler(node, _member(found, "status").get("runtimeHandlers"))
    serving = "true" if node.serving and is_known and not node.is_leaving else None
    if _member(found, "metadata", "labels").get(SERVING) != serving:
        metadata["labels"] = {SERVING: serving}
    status: dict[str, Any] = {}
    inventory = node.resources
    if inventory is not None:
        text = inventory.to_json()
        if _member(found, "metadata", "annotations").get(ANNOTATION) != text:
            metadata["annotations"] = {ANNOTATION: text}
        status = _capacity(node, _member(found, "status", "capacity"), inventory)
    patch = {name: value for name, value in (("metadata", metadata), ("status", status)) if value}
    if patch:
        await api.merge(NODE, node.name, patch, status=True)
    return is_known


def _knows_handler(node: Node, handlers: Any) -> bool:
    """Whether the container engine can start pods of the RuntimeClass, as kubelet tells it from 1.30 on; True
    where it tells nothing.
    """
    is_known = not handlers or any(each.get("name") == HANDLER for each in handlers)
    if is_known:
        node.conditions.clear("handler", f"the container engine knows the runtime {HANDLER}")
    else:
        node.conditions.set(
            "handler",
            f"node {node.name} gets no pods: its container engine does not know the runtime {HANDLER}; "
            "restart containerd or CRI-O once",
        )
    return is_known


def _capacity(node: Node, there: dict[str, Any], inventory: Inventory) -> dict[str, Any]:
    """Nothing where it is as it should be. A node that has none of a resource does not list it."""
    wanted = {
        each.name: each.amount(inventory)
        for each in table.offered(inventory, opt_in=node.opt_in)
        if each.by == "status"
    }
    if all(_number(there.get(resource, "0")) == number for resource, number in wanted.items()):
        return {}
    # kubelet makes allocatable of it at its next look, which may be minutes away.
    texts = {resource: str(number) if number else None for resource, number in wanted.items()}
    return {"capacity": texts, "allocatable": texts}


def _number(quantity: str | None) -> int | None:
    """The API server writes 16000 as 16k; None for what it does not write for a whole number."""
    text = quantity or ""
    scale = _SCALES.get(text[-1:], 1)
    digits = text if scale == 1 else text[:-1]
    return int(digits) * scale if digits.isdigit() else None


def _member(value: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) or {}
    return value

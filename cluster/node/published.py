"""What the API server has of this node's GPUs: the inventory as an annotation, and what kubelet does not count
as the node's capacity.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.api.kinds import NODE
from cluster.node.node import Node
from cluster.resources import table
from cluster.resources.inventory import ANNOTATION, Inventory

# A node that is made anew, and a kubelet that forgets it, leave nothing of it.
LOOK_S = 60.0
RETRY_S = 5.0
_SCALES = {"k": 10**3, "M": 10**6, "G": 10**9}


async def run(node: Node, api: Api) -> None:
    """For ever: writes what is not there."""
    seen = await node.changed()
    while True:
        assert node.resources is not None  # changed() waited for it
        try:
            await publish(api, node.name, node.resources, opt_in=node.opt_in)
            node.told.over("published", f"node {node.name} has its inventory again")
            wait_s = LOOK_S
        except ApiProblem as problem:
            node.told.say("published", f"the inventory of node {node.name} is not written: {problem}")
            wait_s = RETRY_S
        try:
            seen = await asyncio.wait_for(node.changed(seen), wait_s)
        except TimeoutError:
            pass


async def publish(api: Api, name: str, inventory: Inventory, *, opt_in: bool) -> None:
    """Writes only what differs. ApiProblem as the API server has it."""
    found = await api.get(NODE, name)
    text = inventory.to_json()
    if _member(found, "metadata", "annotations").get(ANNOTATION) != text:
        await api.merge(NODE, name, {"metadata": {"annotations": {ANNOTATION: text}}})
    wanted = {
        each.name: each.amount(inventory)
        for each in table.offered(inventory, opt_in=opt_in)
        if each.by == "status"
    }
    there = _member(found, "status", "capacity")
    if any(_number(there.get(resource)) != number for resource, number in wanted.items()):
        # kubelet makes allocatable of it at its next look, which may be minutes away.
        texts = {resource: str(number) for resource, number in wanted.items()}
        await api.merge(NODE, name, {"status": {"capacity": texts, "allocatable": texts}}, status=True)


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

"""The node's pool of devices as ResourceSlices: what they have to say, and whether those that are there say
it.
"""

from collections.abc import Sequence
from typing import Any

from cluster.dra import DRIVER
from cluster.dra.devices import Json, Kept, comparable, device
from cluster.resources.inventory import Inventory

# The API's limit of devices in one slice as soon as one of them has a taint.
DEVICES_MAX = 64


def selects(node: str) -> dict[str, str]:
    """The field selector of our own slices: what other drivers write is not ours to judge."""
    return {"spec.driver": DRIVER, "spec.nodeName": node}


def devices(inventory: Inventory, driver_version: str, serving: bool, kept: Kept) -> list[Json]:
    """The node's offer; arguments as of devices.device()."""
    containers = inventory.rules.max_containers_per_card
    found = [device(card, containers, driver_version, serving, kept) for card in inventory.cards]
    return [each for each in found if each is not None]


def built(node: Json, offered: Sequence[Json], generation: int) -> list[Json]:
    """The slices of a node (its object) that offers these devices; none for a node without any."""
    name = node["metadata"]["name"]
    parts = [offered[at : at + DEVICES_MAX] for at in range(0, len(offered), DEVICES_MAX)]
    return [
        {
            "metadata": {
                "name": f"{name}-{DRIVER}-{number}",
                # With the node, its slices go too.
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
                ],
            },
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": generation, "resourceSliceCount": len(parts)},
                "devices": list(part),
            },
        }
        for number, part in enumerate(parts)
    ]


def generation(there: Sequence[Json]) -> int:
    """The pool's; 0 where there is none. What is not to be read as a number counts as none."""
    return max([0, *(number for number in map(_generation, there) if isinstance(number, int))])


def _generation(value: Json) -> Any:
    pool = _member(_member(value, "spec"), "pool")
    return pool.get("generation")


def _member(value: Json, name: str) -> Json:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def same(there: Sequence[Json], wanted: Sequence[Json]) -> bool:
    """Whether the slices that are there say what is wanted; their generation may be any, but one."""
    if len({_generation(each) for each in there}) > 1 or len(there) != len(wanted):
        return False
    by_name = {_member(each, "metadata").get("name"): _member(each, "spec") for each in there}
    return all(_said(by_name.get(each["metadata"]["name"], {})) == _said(each["spec"]) for each in wanted)


def _said(spec: Json) -> Json:
    pool = {**_member(spec, "pool"), "generation": 0}
    return {
        "driver": spec.get("driver"),
        "nodeName": spec.get("nodeName"),
        "pool": pool,
        "devices": comparable(spec.get("devices")),
    }

"""Every resource that a node offers, as data: its name, its amount, and what a container that has it is told.

kubelet counts a device plugin's resource by ids, one a unit. It cannot count MiB so (docs/cluster.md has the
figures), so that such a resource is a number in the node's status, which the scheduler counts, and kubelet
hands the same amount out in blocks: BLOCKS and SPARE, which admission adds to the limits beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cluster.resources.inventory import Card, Inventory
from oci_specs import units
from oci_specs.vocabulary import BLOCKS, RECLAIMABLE_MEMORY, SPARE

By = Literal["kubelet", "status"]
Amount = Callable[[Inventory], int]
Value = Callable[[int, Inventory], str]

CORE_PER_CARD = 100
# More than a node has pods (kubelet's default is 110): so many containers may have memory that is no whole
# number of blocks, also on a node of many MIG instances.
ODD_CONTAINERS_MAX = 256
GIB_KEY = "aliyun.com/gpu-mem"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """by: who counts it on the node, kubelet by a device plugin's ids or the node's status alone.

    amount: how much there is on the healthy cards. annotation: the key of the container annotation by which
    mgpud hears what kubelet gave, value: its text for a number of units; None for by "status". opt_in:
    offered only where the operator says so.
    """

    name: str
    by: By
    amount: Amount
    annotation: str | None = None
    value: Value = lambda number, _: str(number)
    opt_in: bool = False


def _sum(of_card: Callable[[Card], int]) -> Amount:
    """Each card by itself: a container's part of one card is never made of two."""
    return lambda node: sum(of_card(card) for card in node.healthy)


def _mib(card: Card) -> int:
    return card.memory_mib


def _places(node: Inventory) -> int:
    return len(node.healthy) * node.rules.max_containers_per_card


def _blocks(node: Inventory) -> int:
    """Each container's last block may be a part of one, so that there is one more for every container. What
    is lent has been granted already: it may be as much again.
    """
    whole = _sum(lambda card: card.memory_mib // units.BLOCK_MIB * (2 if card.lending else 1))
    return whole(node) + _places(node)


def _spare(node: Inventory) -> int:
    return min(_places(node), ODD_CONTAINERS_MAX) * (units.BLOCK_MIB - 1)


def _percent_of_memory(number: int, node: Inventory) -> str:
    """HAMi's percentage in MiB of the smallest card, so that it fits whichever the container gets."""
    return str(min((card.memory_mib for card in node.healthy), default=0) * number // 100)


def _status(name: str, amount: Amount, *, opt_in: bool = False) -> Resource:
    return Resource(name=name, by="status", amount=amount, opt_in=opt_in)


def _kubelet(name: str, amount: Amount) -> Resource:
    return Resource(name=name, by="kubelet", amount=amount, annotation=name)


_CORE = _sum(lambda _: CORE_PER_CARD)

RESOURCES = (
    _kubelet(BLOCKS, _blocks),
    _kubelet(SPARE, _spare),
    _status("vke.volcengine.com/mgpu-memory", _sum(_mib)),
    _kubelet("vke.volcengine.com/mgpu-core", _CORE),
    _kubelet("vke.volcengine.com/reclaimed-mgpu-core", _CORE),
    _kubelet("tke.cloud.tencent.com/qgpu-memory", _sum(lambda card: card.memory_mib // units.MIB_PER_GIB)),
    _kubelet("tke.cloud.tencent.com/qgpu-core", _CORE),
    _kubelet("tke.cloud.tencent.com/qgpu-core-greedy", _CORE),
    _kubelet(GIB_KEY, _sum(lambda card: units.gib_units(card.memory_mib))),
    _kubelet("tencent.com/vcuda-memory", _sum(lambda card: card.memory_mib // units.VCUDA_BLOCK_MIB)),
    _kubelet("tencent.com/vcuda-core", _CORE),
    _status("mgpu.dev/memory-mib", _sum(_mib)),
    # It moves with use: 0 where nothing is lent.
    _status(RECLAIMABLE_MEMORY, _sum(lambda card: card.reclaimable_mib)),
    _kubelet("mgpu.dev/core", _CORE),
    # A number of cards: each card has a place for every container that may share it.
    _kubelet("mgpu.dev/gpus", _places),
    _status("nvidia.com/gpumem", _sum(_mib), opt_in=True),
    Resource(
        name="nvidia.com/gpumem-percentage",
        by="kubelet",
        amount=_CORE,
        annotation="mgpu.dev/memory-mib",
        value=_percent_of_memory,
        opt_in=True,
    ),
    Resource(
        name="nvidia.com/gpucores", by="kubelet", amount=_CORE, annotation="mgpu.dev/core", opt_in=True
    ),
)


def offered(node: Inventory, *, opt_in: bool = False) -> tuple[Resource, ...]:
    """The offer of a node with this inventory. opt_in: HAMi's names too.

    Where the cluster counts aliyun.com/gpu-mem in MiB, it is counted as all such are.
    """
    chosen = [each for each in RESOURCES if opt_in or not each.opt_in]
    if node.rules.aliyun_unit == "mib":
        chosen = [_status(GIB_KEY, _sum(_mib)) if each.name == GIB_KEY else each for each in chosen]
    return tuple(chosen)


def blocks_of(mib: int) -> tuple[int, int]:
    """(BLOCKS, SPARE) that amount to so many MiB, as admission adds them."""
    blocks = -(-mib // units.BLOCK_MIB)
    return blocks, blocks * units.BLOCK_MIB - mib

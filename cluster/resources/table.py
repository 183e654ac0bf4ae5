"""Every resource that a node offers, as data: its name, its amount, and what a container that has it is told.

kubelet counts a device plugin's resource by ids, one a unit. It cannot count MiB so (docs/cluster.md has the
figures), so that such a resource is a number in the node's status, which the scheduler counts, and kubelet
hands the same amount out in blocks: BLOCKS and SPARE, which admission adds to the limits beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cluster.resources.inventory import Card, Inventory
from oci_specs import units
from oci_specs.vocabulary import BLOCKS, MEMORY_MIB, MEMORY_PERCENT, RECLAIMABLE_MEMORY, SPARE

By = Literal["kubelet", "status"]
Amount = Callable[[Inventory], int]

CORE_PER_CARD = 100
# More than a node has pods (kubelet's default is 110): so many containers may have memory that is no whole
# number of blocks, also on a node of many MIG instances.
ODD_CONTAINERS_MAX = 256
GIB_KEY = "aliyun.com/gpu-mem"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """by: who counts it on the node, kubelet by a device plugin's ids or the node's status alone.

    amount: how much there is on the healthy cards. annotation: the key of the container annotation by which
    mgpud hears what kubelet gave; None for by "status". opt_in: HAMi's, offered only where the operator says
    so; admission says the same by our names, so that nobody else reads them.
    """

    name: str
    by: By
    amount: Amount
    annotation: str | None = None
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


def _status(name: str, amount: Amount) -> Resource:
    return Resource(name=name, by="status", amount=amount)


def _kubelet(name: str, amount: Amount) -> Resource:
    return Resource(name=name, by="kubelet", amount=amount, annotation=name)


def _hami(name: str, amount: Amount, by: By = "kubelet") -> Resource:
    return Resource(name=name, by=by, amount=amount, opt_in=True)


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
    _status(MEMORY_MIB, _sum(_mib)),
    _kubelet(MEMORY_PERCENT, _CORE),
    # It moves with use: 0 where nothing is lent.
    _status(RECLAIMABLE_MEMORY, _sum(lambda card: card.reclaimable_mib)),
    _kubelet("mgpu.dev/core", _CORE),
    # A number of cards: each card has a place for every container that may share it.
    _kubelet("mgpu.dev/gpus", _places),
    _hami("nvidia.com/gpu", _places),
    _hami("nvidia.com/gpumem", _sum(_mib), "status"),
    _hami("nvidia.com/gpumem-percentage", _CORE),
    _hami("nvidia.com/gpucores", _CORE),
    _hami("nvidia.com/priority", _places),
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

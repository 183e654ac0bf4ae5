"""A container of a checkpoint: the cards that it can come back to, and what it has in host memory."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from native_sched.daemon.grants.grants import Reclaim, ReclaimState
from native_sched.daemon.grants.refusals import LEAST_DRIVER, LEAST_DRIVER_FOR_OTHERS, can_evict, older
from native_sched.daemon.node.inventory import CardInfo
from oci_specs.refusal import Refusal, printable
from placement.cards import CardShare, CardState

# One of those that it had: uuid, name, minor, bytes (schemas/saved.schema.json).
Gpu = Mapping[str, Any]


def cards_for(saved: Iterable[Gpu], cards: Iterable[CardState]) -> list[CardState]:
    """The cards whose nodes it has, since its /dev came with the checkpoint. Refusal where one is missing."""
    minors = {gpu["minor"] for gpu in saved}
    found = [card for card in cards if card.minor in minors]
    for minor in sorted(minors - {card.minor for card in found}):
        raise Refusal(
            "no-node",
            f"the container was checkpointed with /dev/nvidia{minor}, a GPU that this node has not",
            "restore it on a node that has one, of the same model",
        )
    return found


def reclaim(
    saved: Sequence[Gpu], placed: Sequence[CardShare], driver_version: str, cards: Iterable[CardInfo]
) -> Reclaim:
    """Evicted, until its processes run and can be asked. Refusal where they could not be moved back."""
    if len(saved) != len(placed):
        raise Refusal(
            "another-count",
            f"the container was checkpointed with {len(saved)} GPUs, and its spec asks for {len(placed)}",
            "restore it with the spec that it had",
        )
    had = {gpu["minor"]: gpu for gpu in saved}
    for card in placed:
        _check(had[card.minor], card, driver_version)
    indices = {card.index for card in placed}
    if not all(can_evict(driver_version, card) for card in cards if card.index in indices):
        if any(gpu["bytes"] for gpu in saved):
            raise Refusal(
                "cannot-restore",
                f"driver {printable(driver_version)} does not move processes onto the GPUs here",
                f"restore it on a node with driver {LEAST_DRIVER} or newer, on GPUs without MIG",
            )
        return Reclaim()
    return Reclaim(
        state=ReclaimState.EVICTING,
        saved=tuple(had[card.minor]["uuid"] for card in placed),
        bytes={card.index: had[card.minor]["bytes"] for card in placed if had[card.minor]["bytes"]},
        since_ns=time.monotonic_ns(),
    )


def _check(gpu: Gpu, card: CardShare, driver_version: str) -> None:
    if gpu["name"] != card.name:
        raise Refusal(
            "another-model",
            f"the container was checkpointed on a {printable(gpu['name'])}, and GPU {card.index} is a {card.name}",
            "restore it on a node with the same model",
        )
    if gpu["bytes"] > card.memory_mib << 20:
        raise Refusal(
            "cap-too-small",
            f"the container had {-(-gpu['bytes'] >> 20)} MiB of GPU memory, and its cap is {card.memory_mib} MiB now",
            "restore it with a cap that holds them",
        )
    if gpu["bytes"] and gpu["uuid"] != card.uuid and older(driver_version, LEAST_DRIVER_FOR_OTHERS):
        raise Refusal(
            "cannot-relocate",
            f"driver {printable(driver_version)} restores a process onto its own GPUs only, and these are others",
            f"restore it where driver {LEAST_DRIVER_FOR_OTHERS} or newer is, or on the machine that it comes from",
        )

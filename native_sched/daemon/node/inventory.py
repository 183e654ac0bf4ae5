"""The cards of this node: from NVML on real ones, from the card process on simulated ones."""

import ctypes
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import NO_INSTANCE, Card
from native_sched.daemon.log import LOG
from oci_specs import paths
from oci_specs.refusal import Refusal

# One folder for each GPU that NVIDIA's driver is bound to, by its place on the bus.
GPUS_DIR = "/proc/driver/nvidia/gpus"


@dataclass(frozen=True, kw_only=True)
class CardInfo:
    """One card, or one MIG instance: a card of its own with its own memory and engines.

    memory_mib: what it has, of a GPU instance with several compute instances an equal part. context_bytes,
    copy_context_bytes: what the driver takes of it per channel group, of the graphics engine and of a copy
    engine. instance: (GPU instance, compute instance) of MIG. architecture: NVIDIA's name of it, "" where it
    is not known. compute_mode: NVML's; 0 is the default one.
    """

    index: int
    minor: int
    uuid: str
    name: str
    memory_mib: int
    gpu_id: int
    context_bytes: int = 0
    copy_context_bytes: int = 0
    instance: tuple[int, int] | None = None
    architecture: str = ""
    compute_mode: int = 0


class Found(NamedTuple):
    """A driver's answer: its version and its cards, under numbers of its own; lost: UUIDs of those that have
    fallen off the bus, as far as it still lists them.
    """

    version: str
    cards: list[CardInfo]
    lost: frozenset[str] = frozenset()


def numbered(
    cards: Iterable[CardInfo], known: Mapping[str, int], used: Iterable[int] = ()
) -> list[CardInfo]:
    """The cards under the numbers that they have had, by UUID. Another one keeps the driver's number, or has
    the lowest that no card has had. used: further numbers that cards have had.
    """
    taken, result = {*known.values(), *used}, []
    for card in cards:
        index = known.get(card.uuid)
        if index is None:
            index = card.index if card.index not in taken else next(n for n in count() if n not in taken)
            taken.add(index)
        result.append(replace(card, index=index))
    return result


# By NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE and by NVML_DEVICE_ARCH.
_RM_ARCHITECTURES = {
    0x140: "volta",
    0x160: "turing",
    0x170: "ampere",
    0x180: "hopper",
    0x190: "ada-lovelace",
    0x1A0: "blackwell",
    0x1B0: "blackwell",
}
_NVML_ARCHITECTURES = {
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada-lovelace",
    9: "hopper",
    10: "blackwell",
}


def recorded(card: Mapping[str, Any]) -> CardInfo:
    """As asdict() and JSON have it."""
    instance = card.get("instance")
    return CardInfo(**{**card, "instance": tuple(instance) if instance else None})


def add_to(engine: Engine, card: CardInfo, *, released: bool = False) -> None:
    """released: nothing of it is opened before it is added again. OSError."""
    engine.add_card(
        Card(
            index=card.index,
            minor=card.minor,
            gpu_id=card.gpu_id,
            # The simulated driver's; the real one is asked.
            device_instance=card.minor,
            gpu_instance=card.instance[0] if card.instance else NO_INSTANCE,
            compute_instance=card.instance[1] if card.instance else NO_INSTANCE,
            released=released,
            memory_bytes=card.memory_mib << 20,
            context_bytes=card.context_bytes,
            copy_context_bytes=card.copy_context_bytes,
            uuid=(ctypes.c_uint8 * 16)(*_uuid_bytes(card)),
        )
    )


def _uuid_bytes(card: CardInfo) -> bytes:
    """As nvidia-uvm names it. An instance has none: UVM knows it by a name of its own."""
    return bytes(16) if card.instance else UUID(card.uuid.removeprefix("GPU-")).bytes


def simulated(directory: str) -> Found:
    """The cards of the card process with sockets in `directory`; Refusal when none answers, or none can."""
    paths.simcard()
    from sim import cards

    admin = os.path.join(directory, "admin.sock")
    listed = cards.cards(admin)
    found = [
        CardInfo(
            index=card.index,
            minor=card.minor,
            uuid=card.uuid,
            name=card.name,
            memory_mib=card.memory_mib,
            gpu_id=card.gpu_id,
            context_bytes=card.context_bytes,
            copy_context_bytes=card.copy_context_bytes,
            architecture=_RM_ARCHITECTURES.get(card.arch, ""),
        )
        for card in listed
    ]
    version = str(cards.ask(admin, "driver")["driver_version"])
    return Found(version, found, frozenset(card.uuid for card in listed if card.lost))


def nvml(without: Collection[int] = ()) -> Found:
    """The real driver's cards, but for GPUs with these gpu_ids, of which nothing is opened; Refusal when NVML
    has none.

    A card that has fallen off the bus is not among its cards: NVML tells not even its UUID. What the driver
    takes per channel group it does not tell: contexts.py.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Refusal(
            "no-driver",
            f"NVML does not start ({error})",
            "load the NVIDIA driver, or try mgpu up --sim v100-16:2",
        ) from error
    try:
        cards: list[CardInfo] = []
        for handle_of in _handles(pynvml, without):
            try:
                own = _cards_of(pynvml, handle_of())
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_GPU_IS_LOST:
                    raise
            else:
                cards += [replace(card, index=len(cards) + at) for at, card in enumerate(own)]
        return Found(str(pynvml.nvmlSystemGetDriverVersion()), cards)
    finally:
        pynvml.nvmlShutdown()


def _handles(pynvml: Any, without: Collection[int]) -> list[Callable[[], Any]]:
    """Calls that ask NVML for each GPU, by which NVML opens it."""
    if not without:
        indices = range(pynvml.nvmlDeviceGetCount())
        return [partial(pynvml.nvmlDeviceGetHandleByIndex, number) for number in indices]
    # By their places on the bus, which are known before a GPU is opened; NVML counts in this order too.
    return [
        partial(pynvml.nvmlDeviceGetHandleByPciBusId, place.encode())
        for place in sorted(os.listdir(GPUS_DIR))
        if _gpu_id(*(int(part, 16) for part in re.split("[:.]", place)[:3])) not in without
    ]


def _gpu_id(domain: int, bus: int, device: int) -> int:
    """RM's gpuId of a PCI device, as gpuGenerateGpuId() packs it."""
    return domain << 16 | bus << 8 | device


def _cards_of(pynvml: Any, handle: Any) -> list[CardInfo]:
    """The card, or its MIG instances."""
    pci = pynvml.nvmlDeviceGetPciInfo(handle)
    instances = _instances(pynvml, handle)
    inside = Counter(instance[0] for _, instance in instances or [])
    return [
        CardInfo(
            index=0,
            minor=pynvml.nvmlDeviceGetMinorNumber(handle),
            uuid=str(pynvml.nvmlDeviceGetUUID(device)),
            name=str(pynvml.nvmlDeviceGetName(device)),
            # To NVML each compute instance has all of the memory that it shares with its like.
            memory_mib=(pynvml.nvmlDeviceGetMemoryInfo(device).total >> 20)
            // (inside[instance[0]] if instance else 1),
            gpu_id=_gpu_id(pci.domain, pci.bus, pci.device),
            instance=instance,
            architecture=_architecture(pynvml, handle),
            compute_mode=_compute_mode(pynvml, handle),
        )
        for device, instance in ([(handle, None)] if instances is None else instances)
    ]


def _architecture(pynvml: Any, handle: Any) -> str:
    try:
        return _NVML_ARCHITECTURES.get(pynvml.nvmlDeviceGetArchitecture(handle), "")
    except pynvml.NVMLError:
        return ""


def _compute_mode(pynvml: Any, handle: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetComputeMode(handle))
    except pynvml.NVMLError:
        return 0


def see_compute_mode(card: CardInfo) -> None:
    """In the exclusive modes, and in "prohibited", RM itself keeps a card's second process away."""
    if card.compute_mode:
        LOG.warning(
            "compute-mode-exclusive",
            card=card.index,
            mode=card.compute_mode,
            risk="one process at most gets a context there",
            what=f"nvidia-smi -i {card.uuid} -c DEFAULT",
        )


def _instances(pynvml: Any, handle: Any) -> list[tuple[Any, tuple[int, int]]] | None:
    """The MIG instances of a card, each with its (GPU instance, compute instance); None where MIG is off.

    A card on which it is on has nothing to offer but them.
    """
    try:
        on, _ = pynvml.nvmlDeviceGetMigMode(handle)
        if not on:
            return None
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:
        return None
    found = []
    for number in range(most):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except pynvml.NVMLError:
            continue
        gpu, compute = (
            pynvml.nvmlDeviceGetGpuInstanceId(device),
            pynvml.nvmlDeviceGetComputeInstanceId(device),
        )
        found.append((device, (gpu, compute)))
    return found

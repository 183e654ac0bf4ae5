"""The cards of this node: from NVML on real ones, from the card process on simulated ones."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from native_sched.daemon.log import LOG
from oci_specs.refusal import Refusal
from sim import cards


@dataclass(frozen=True, kw_only=True)
class CardInfo:
    """One card, or one MIG instance: a card of its own with its own memory and engines.

    memory_mib: what it has, of a GPU instance with several compute instances an equal part. context_bytes,
    copy_context_bytes: what the driver takes of it per channel group, of the graphics engine and of a copy
    engine. instance: (GPU instance, compute instance) of MIG. architecture: NVIDIA's name of it, "" where it
    is not known.
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


def simulated(directory: str) -> tuple[str, list[CardInfo]]:
    """(driver version, cards) of the card process with sockets in `directory`; Refusal when none answers."""
    admin = os.path.join(directory, "admin.sock")
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
        for card in cards.cards(admin)
    ]
    return str(cards.ask(admin, "driver")["driver_version"]), found


def nvml() -> tuple[str, list[CardInfo]]:
    """(driver version, cards) of the real driver; Refusal when NVML has none to offer.

    What the driver takes per channel group it does not tell: contexts.py.
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
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            pci = pynvml.nvmlDeviceGetPciInfo(handle)
            _see_compute_mode(pynvml, handle, number)
            instances = _instances(pynvml, handle)
            inside = Counter(instance[0] for _, instance in instances or [])
            for device, instance in [(handle, None)] if instances is None else instances:
                cards.append(
                    CardInfo(
                        index=len(cards),
                        minor=pynvml.nvmlDeviceGetMinorNumber(handle),
                        uuid=str(pynvml.nvmlDeviceGetUUID(device)),
                        name=str(pynvml.nvmlDeviceGetName(device)),
                        # To NVML each compute instance has all of the memory that it shares with its like.
                        memory_mib=(pynvml.nvmlDeviceGetMemoryInfo(device).total >> 20)
                        // (inside[instance[0]] if instance else 1),
                        # RM's gpuId of a PCI device: domain, bus and slot packed as gpuGenerateGpuId does
                        gpu_id=pci.domain << 16 | pci.bus << 8 | pci.device,
                        instance=instance,
                        architecture=_architecture(pynvml, handle),
                    )
                )
        return str(pynvml.nvmlSystemGetDriverVersion()), cards
    finally:
        pynvml.nvmlShutdown()


def lost_simulated(directory: str) -> set[int]:
    """Which cards have fallen off the bus; Refusal when the card process does not answer."""
    return {card.index for card in cards.cards(os.path.join(directory, "admin.sock")) if card.lost}


def lost_nvml(known: Iterable[CardInfo]) -> set[int]:
    """Which of the cards the driver says are lost; a Refusal or NVML's error when it tells nothing at all."""
    import pynvml

    pynvml.nvmlInit()
    try:
        found = set()
        for card in known:
            try:
                pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(card.uuid))
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                    found.add(card.index)
        return found
    finally:
        pynvml.nvmlShutdown()


def _architecture(pynvml: Any, handle: Any) -> str:
    try:
        return _NVML_ARCHITECTURES.get(pynvml.nvmlDeviceGetArchitecture(handle), "")
    except pynvml.NVMLError:
        return ""


def _see_compute_mode(pynvml: Any, handle: Any, number: int) -> None:
    """In the exclusive modes, and in "prohibited", RM itself keeps a card's second process away."""
    try:
        mode = pynvml.nvmlDeviceGetComputeMode(handle)
    except pynvml.NVMLError:
        return
    if mode != pynvml.NVML_COMPUTEMODE_DEFAULT:
        LOG.warning(
            "compute-mode-exclusive",
            card=number,
            mode=mode,
            risk="one process at most gets a context there",
            what=f"nvidia-smi -i {number} -c DEFAULT",
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

"""What our own RM client asks: sizes one off, classes by ALLOC_CONTEXT_DMA2, subscriptions to MIG
instances."""

import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path

from native_sched.daemon.node import capabilities
from tests.gpu import rm
from tests.gpu.backend import Backend
from tests.gpu.own_client import DEVICE, SUBDEVICE, OwnClient
from tests.gpu.results import Result, Results
from tests.gpu.stage import CannotSayError
from tests.support.rm_numbers import (
    AMPERE_SMC_EXEC_PARTITION_REF,
    AMPERE_SMC_PARTITION_REF,
    FERMI_VASPACE_A,
    HOPPER_CHANNEL_GPFIFO_A,
    KEPLER_CHANNEL_GROUP_A,
    NV2080_CTRL_CMD_MC_GET_ARCH_INFO,
    NV_ESC_RM_ALLOC_CONTEXT_DMA2,
    NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS,
    NVC638_CTRL_CMD_GET_UUID,
)

# NV2080_CTRL_CMD_MC_GET_ARCH_INFO, the same 16 bytes in every version; an object that is not there.
ARCH_INFO, ARCH_BYTES, NOTHING = NV2080_CTRL_CMD_MC_GET_ARCH_INFO, 16, 0xCAFEFFFF
# NV_ESC_RM_ALLOC_CONTEXT_DMA2, NVOS39: parent, subdevice, new, class, flags, selector, memory, offset, limit,
# status.
CONTEXT_DMA, CONTEXT_DMA_STRUCT, CONTEXT_DMA_STATUS = (
    NV_ESC_RM_ALLOC_CONTEXT_DMA2,
    struct.Struct("<7I4xQQI4x"),
    0x30,
)
BY_CONTEXT_DMA = {
    "address space": FERMI_VASPACE_A,
    "group": KEPLER_CHANNEL_GROUP_A,
    "channel": HOPPER_CHANNEL_GPFIFO_A,
    "memory": 0x40,
}
SPACE, FIRST = 0xCAFE90F1, 0xCAFEB000
SPACE_BYTES = 56
# AMPERE_SMC_PARTITION_REF and _EXEC_PARTITION_REF: the capability's descriptor, then the number; and a
# control of each.
GPU_INSTANCE, COMPUTE_INSTANCE = AMPERE_SMC_PARTITION_REF, AMPERE_SMC_EXEC_PARTITION_REF
SUBSCRIPTION = {GPU_INSTANCE: 0xCAFEC637, COMPUTE_INSTANCE: 0xCAFEC638}
CONTROLS = {
    GPU_INSTANCE: (NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS, 364),
    COMPUTE_INSTANCE: (NVC638_CTRL_CMD_GET_UUID, 57),
}


def control(own: OwnClient, thing: int, cmd: int, size: int) -> int:
    """RM's status, or a negative errno."""
    call = rm.control(own.client, thing, cmd, bytes(size))
    error = own.backend.on_file(own.ctl, call)
    return -error if error else call.u32(0x1C)


def allocate(own: OwnClient, parent: int, handle: int, class_id: int, params: bytes, size: int) -> int:
    """With that size in the outer struct, whatever the class takes."""
    call = rm.alloc(own.client, parent, handle, class_id, params)
    struct.pack_into("<I", call.outer, 0x20, size)
    error = own.backend.on_file(own.ctl, call)
    return -error if error else call.u32(0x28)


def sizes(backend: Backend, results: Results, out: Result) -> None:
    """Of a control on an object, on another object, and on none; and of an allocation's parameters."""
    with OwnClient(backend) as own:
        for name, thing in (("on_its_object", SUBDEVICE), ("on_another", DEVICE), ("on_nothing", NOTHING)):
            out.figures[name] = {
                size: hex(control(own, thing, ARCH_INFO, size))
                for size in (ARCH_BYTES, 0, ARCH_BYTES - 1, ARCH_BYTES + 1)
            }
        out.figures["parameters"] = {
            size: hex(allocate(own, DEVICE, FIRST + size, rm.SUBDEVICE, bytes(16), size))
            for size in (4, 0, 3, 16)
        }
    wrong = {status for name in ("on_its_object", "on_another", "on_nothing")
             for size, status in out.figures[name].items() if size != ARCH_BYTES}  # fmt: skip
    before_the_object = wrong == {hex(rm.INVALID_ARGUMENT)}
    out.verdict = (
        "a wrong size is told before the object is" if before_the_object else f"wrong sizes: {sorted(wrong)}"
    )


def by_context_dma(backend: Backend, results: Results, out: Result) -> None:
    """Whether the escape allocates what no program needs it for: why mgpu refuses it."""
    with OwnClient(backend) as own:
        vaspace = allocate(own, DEVICE, SPACE, FERMI_VASPACE_A, bytes(SPACE_BYTES), SPACE_BYTES)
        out.figures["an address space to name"] = hex(vaspace)
        for i, (name, class_id) in enumerate(BY_CONTEXT_DMA.items()):
            outer = CONTEXT_DMA_STRUCT.pack(own.client, 0, FIRST + i, class_id, 0, 0, SPACE, 0, 0xFFFF, 0)
            call = rm.Call(CONTEXT_DMA, bytearray(outer), bytearray(), -1)
            error = backend.on_file(own.ctl, call)
            out.figures[name] = f"errno {error}" if error else hex(call.u32(CONTEXT_DMA_STATUS))
    made = [name for name in BY_CONTEXT_DMA if out.figures[name] == "0x0"]
    out.verdict = f"makes: {', '.join(made)}" if made else "makes nothing"


def mig(backend: Backend, results: Results, out: Result) -> None:
    """Subscribing to the first instance, and what a control of the right size says of it, and one of none."""
    minors = with_nodes(capabilities.minors()) if backend.name == "nvidia" else {}
    with OwnClient(backend) as own:
        out.figures |= mig_subscribe(own, minors)
    right = out.figures["right_size"]
    out.verdict = (
        "a right size tells a subscription"
        if right["subscription"] == "0x0" != right["nothing"]
        else "does not tell a subscription"
    )


def with_nodes(minors: Mapping[str, int]) -> dict[str, int]:
    """The driver lists what could be; a node is there for what is."""
    return {
        name: minor for name, minor in minors.items() if Path(f"/dev/nvidia-caps/nvidia-cap{minor}").exists()
    }


def mig_subscribe(own: OwnClient, minors: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """CannotSayError where there is no instance."""
    found = [name for name in sorted(minors) if re.fullmatch(r"gpu0/gi\d+/ci\d+/access", name)]
    if not found:
        raise CannotSayError("there is no MIG instance: nvidia-smi mig -cgi ID -C makes one")
    gpu, compute = (int(number) for number in re.findall(r"[gc]i(\d+)", found[0]))
    statuses = {}
    for class_id, parent, number, name in (
        (GPU_INSTANCE, SUBDEVICE, gpu, f"gpu0/gi{gpu}/access"),
        (COMPUTE_INSTANCE, SUBSCRIPTION[GPU_INSTANCE], compute, found[0]),
    ):
        capability = own.backend.open(f"nvidia-caps/nvidia-cap{minors[name]}")
        params = struct.pack("<QI4x", capability, number)
        statuses[name] = hex(allocate(own, parent, SUBSCRIPTION[class_id], class_id, params, len(params)))
        os.close(capability)
    capability = own.backend.open(f"nvidia-caps/nvidia-cap{minors[f'gpu0/gi{gpu}/access']}")
    params = struct.pack("<QI4x", capability, gpu + 1)
    another = hex(allocate(own, SUBDEVICE, FIRST, GPU_INSTANCE, params, len(params)))
    os.close(capability)
    cmd, size = CONTROLS[GPU_INSTANCE]
    things = {"subscription": SUBSCRIPTION[GPU_INSTANCE], "subdevice": SUBDEVICE, "nothing": NOTHING}
    return {
        "subscribed": statuses,
        "with_another's_capability": {"status": another},
        "right_size": {name: hex(control(own, thing, cmd, size)) for name, thing in things.items()},
        "no_size": {name: hex(control(own, thing, cmd, 0)) for name, thing in things.items()},
    }

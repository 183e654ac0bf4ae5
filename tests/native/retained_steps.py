"""Steps of a tenant with channels, which nvidia-uvm may retain."""

import struct

from tests.native.nvidia_mediated import Answer, Tenant, World
from tests.native.rm_params import (
    ADDRESS_SPACE,
    CTL,
    GROUP,
    HOPPER,
    MAP,
    MEMORY_SYSTEM,
    UVM_REGISTER_CHANNEL,
    UVM_REGISTER_GPU_VASPACE,
    channel,
    group,
    host_memory,
)
from tests.native.uvm_params import GPU_ONE, register_space, uvm_register_channel
from tests.support import rm_numbers as nv

NO_MEMORY, ATTACHED = nv.NV_ERR_NO_MEMORY, nv.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
SCHEDULE = nv.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE
GROUP_HANDLE, USERD, CHANNEL, SPACE = 0x900, 0x901, 0x902, 0x903
SPACE_STATUS, REGISTER_STATUS, STATUS = 28, 48, 0x28


def make(tenant: Tenant, client: int, parent: int, handle: int, class_id: int, params: bytes) -> None:
    answer = tenant.alloc(client, parent, handle, class_id, params)
    assert (answer.result, answer.u32(STATUS), answer.through) == (0, 0, False), hex(answer.u32(STATUS))


def make_group(tenant: Tenant, client: int, handle: int = GROUP_HANDLE) -> None:
    make(tenant, client, 0xD0, handle, GROUP, group())


def make_channel(
    tenant: Tenant, client: int, handle: int = CHANNEL, group_handle: int = GROUP_HANDLE
) -> None:
    make(tenant, client, group_handle, handle, HOPPER, channel(0))


def working_group(tenant: Tenant, client: int) -> int:
    """A group with a channel, scheduled; the descriptor that maps its USERD."""
    make(tenant, client, 0xD0, GROUP_HANDLE, GROUP, group())
    make(tenant, client, 0xD0, USERD, MEMORY_SYSTEM, host_memory(65536))
    make(tenant, client, GROUP_HANDLE, CHANNEL, HOPPER, channel(USERD))
    scheduled = tenant.control(client, GROUP_HANDLE, SCHEDULE, b"\x01\x00\x00")
    assert (scheduled.result, scheduled.u32(0x1C)) == (0, 0)
    view = tenant.open(CTL)
    outer = struct.pack("IIIIQQQIIiI", client, 0xD0, USERD, 0, 0, 65536, 0, 0, 0, view, 0)
    mapped = tenant.ioctl(tenant.ctl, MAP, outer)
    assert (mapped.result, mapped.u32(STATUS), mapped.through) == (0, 0, True)
    return view


def of_one_group(here: World, tenant: Tenant | None = None) -> tuple[Tenant, int]:
    """A tenant with a group that has a channel, and its client."""
    tenant = tenant or here.tenant()
    client = tenant.client()
    make_group(tenant, client)
    make_channel(tenant, client)
    return tenant, client


def make_space(tenant: Tenant, client: int, handle: int = SPACE) -> None:
    make(tenant, client, 0xD0, handle, ADDRESS_SPACE, bytes(56))


def registers_space(
    tenant: Tenant, client: int, handle: int = SPACE, *, fd: int | None = None, gpu: bytes = GPU_ONE
) -> int:
    """The RM status."""
    answer = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, handle, gpu), fd=fd)
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(SPACE_STATUS)


def register(tenant: Tenant, client: int, handle: int = CHANNEL, *, fd: int | None = None) -> Answer:
    answer = tenant.uvm_call(UVM_REGISTER_CHANNEL, uvm_register_channel(client, handle), fd=fd)
    assert (answer.result, answer.through) == (0, False)
    return answer


def registers(tenant: Tenant, client: int, handle: int = CHANNEL, *, fd: int | None = None) -> None:
    assert register(tenant, client, handle, fd=fd).u32(REGISTER_STATUS) == 0


def uvm_initialize_file(tenant: Tenant, fd: int) -> int:
    """A file of nvidia-uvm that is initialised."""
    assert tenant.uvm_initialize(fd).through
    return fd


def free(tenant: Tenant, client: int, handle: int) -> None:
    answer = tenant.free(client, handle)
    assert (answer.result, answer.u32(0xC)) == (0, 0)


def calls(tenant: Tenant, client: int) -> None:
    """Any call, by the first thread."""
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == 0

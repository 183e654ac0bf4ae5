"""Steps of a tenant whose channels nvidia-uvm may retain."""

from __future__ import annotations

import ctypes

from nvidia_mediated import Tenant, World
from rm_params import (
    ADDRESS_SPACE,
    CONTEXT_MIB,
    GROUP,
    HOPPER,
    UVM_INITIALIZE,
    UVM_REGISTER_CHANNEL,
    UVM_REGISTER_GPU_VASPACE,
    channel,
    group,
)
from uvm_params import GPU_ONE, register_channel, register_space

NO_MEMORY, ATTACHED = 0x51, 0x201
GROUP_HANDLE, USERD, CHANNEL, SPACE = 0x900, 0x901, 0x902, 0x903
SPACE_STATUS, REGISTER_STATUS, STATUS = 28, 48, 0x28


def made(tenant: Tenant, client: int, parent: int, handle: int, class_id: int, params: bytes) -> None:
    answer = tenant.alloc(client, parent, handle, class_id, params)
    assert (answer.result, answer.u32(STATUS), answer.through) == (0, 0, False), hex(answer.u32(STATUS))


def grouped(tenant: Tenant, client: int, handle: int = GROUP_HANDLE) -> None:
    made(tenant, client, 0xD0, handle, GROUP, group())


def channelled(tenant: Tenant, client: int, handle: int = CHANNEL, group_handle: int = GROUP_HANDLE) -> None:
    made(tenant, client, group_handle, handle, HOPPER, channel(0))


def of_one_group(here: World, tenant: Tenant | None = None) -> tuple[Tenant, int]:
    """A tenant with a group that has a channel, and its client."""
    tenant = tenant or here.tenant()
    client = tenant.client()
    grouped(tenant, client)
    channelled(tenant, client)
    return tenant, client


def spaced(tenant: Tenant, client: int, handle: int = SPACE) -> None:
    made(tenant, client, 0xD0, handle, ADDRESS_SPACE, bytes(56))


def space_lands(here: World, tenant: Tenant, client: int, handle: int, fd: int) -> int:
    """A REGISTER_GPU_VASPACE that was let through is carried out on that file: the RM status."""
    lands = here.lib.on_card_space_lands
    lands.restype = ctypes.c_uint32
    return int(lands(tenant.pid, fd, ctypes.c_uint32(client), ctypes.c_uint32(handle)))


def takes(here: World, tenant: Tenant, client: int, fd: int) -> bool:
    """As World.lands(), where the driver does it: on the file on which the client's address space is registered."""
    driver = here.lib.on_card_takes
    driver.restype = ctypes.c_bool
    return bool(driver(tenant.pid, fd, ctypes.c_uint32(client), ctypes.c_uint32(CHANNEL)))


def registers_space(
    here: World,
    tenant: Tenant,
    client: int,
    handle: int = SPACE,
    *,
    fd: int | None = None,
    on: int | None = None,
    gpu: bytes = GPU_ONE,
) -> int:
    """The RM status. on: the file that another thread has put in the place of the one that it is called on."""
    fd = tenant.uvm if fd is None else fd
    answer = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, handle, gpu), fd=fd)
    if answer.through:
        return space_lands(here, tenant, client, handle, fd if on is None else on)
    assert answer.result == 0
    return answer.u32(SPACE_STATUS)


def registers(
    tenant: Tenant, client: int, handle: int = CHANNEL, *, fd: int | None = None, who: str = ""
) -> None:
    """It is let through."""
    answer = tenant.uvm_call(UVM_REGISTER_CHANNEL, register_channel(client, handle), fd=fd, who=who)
    assert answer.through, hex(answer.u32(REGISTER_STATUS))


def known(tenant: Tenant, fd: int) -> int:
    """A file of nvidia-uvm on which a call has been made."""
    assert tenant.uvm_call(UVM_INITIALIZE, b"", fd=fd).through
    return fd


def freed(tenant: Tenant, client: int, handle: int) -> None:
    answer = tenant.free(client, handle)
    assert (answer.result, answer.u32(0xC)) == (0, 0)


def calls(tenant: Tenant, client: int) -> None:
    """Any call, by the first thread."""
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == 0


def freed_while_another_registers(here: World) -> tuple[Tenant, int]:
    """What that registers is not known yet."""
    tenant, client = of_one_group(here)
    registers(tenant, client, who="aside")
    freed(tenant, client, GROUP_HANDLE)
    assert (here.used_mib(tenant), here.retained) == (CONTEXT_MIB, 0)
    return tenant, client

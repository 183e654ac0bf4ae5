"""Steps of a tenant whose channels nvidia-uvm may retain."""

from __future__ import annotations

from nvidia_mediated import Tenant, World
from rm_params import CONTEXT_MIB, GROUP, HOPPER, UVM_INITIALIZE, UVM_REGISTER_CHANNEL, channel, group
from uvm_params import register_channel

NO_MEMORY, ATTACHED = 0x51, 0x201
GROUP_HANDLE, USERD, CHANNEL = 0x900, 0x901, 0x902
REGISTER_STATUS, STATUS = 48, 0x28


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

"""An unlocated control file: the next mgpud finds no process that has it, because it is in a message."""

from tests.native.nvidia_mediated import Tenant, World
from tests.native.retained_steps import CHANNEL, free, of_one_group
from tests.native.rm_params import CONTEXT_MIB, CTL, MEMORY, MIB, memory
from tests.native.watching import removed
from tests.support.rm_numbers import NV_ERR_INVALID_CLIENT, NV_ERR_NO_MEMORY, NV_ESC_RM_DUP_OBJECT
from tests.support.waiting import until

OK, INVALID_CLIENT, NO_MEMORY = 0, NV_ERR_INVALID_CLIENT, NV_ERR_NO_MEMORY
HANDLE, SIZE_MIB = 0x100, 48
STATUS = 0x28
DUP_OBJECT = NV_ESC_RM_DUP_OBJECT


def allocate(tenant: Tenant, client: int, *, fd: int | None = None) -> int:
    """The RM status."""
    return tenant.alloc(client, 0xD0, HANDLE, MEMORY, memory(SIZE_MIB * MIB), fd=fd).u32(STATUS)


def unlocated(here: World) -> tuple[Tenant, int]:
    """A tenant that may have 64 MiB and has 48, through a file that is in a message when the next engine
    begins.
    """
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    here.restart(lambda: tenant.tell("send", tenant.ctl))
    return tenant, client


def test_unlocated_file_stays_charged(here: World) -> None:
    tenant, _client = unlocated(here)
    assert here.used_mib(tenant) == SIZE_MIB
    other = tenant.open(CTL)
    tenant.ctl = other
    assert allocate(tenant, tenant.client()) == NO_MEMORY
    here.restart()
    assert here.used_mib(tenant) == SIZE_MIB


def test_unlocated_file_is_known_again_when_received(here: World) -> None:
    tenant, client = unlocated(here)
    tenant.ctl = int(tenant.tell("receive"))
    free(tenant, client, HANDLE)
    assert here.used_mib(tenant) == 0
    assert allocate(tenant, client) == OK
    tenant.tell("close", tenant.ctl)
    until(lambda: here.used_mib(tenant) == 0, "it ends as any")


def test_calls_of_other_tenants_do_not_locate_a_file(here: World) -> None:
    tenant, client = unlocated(here)
    other = here.tenant()
    assert other.client() != client
    tenant.ctl = tenant.open(CTL)
    assert tenant.free(client, HANDLE).u32(0xC) == INVALID_CLIENT
    assert here.used_mib(tenant) == SIZE_MIB


def test_unlocated_file_ends_with_its_client(here: World) -> None:
    """Nobody says that the tenant has ended."""
    tenant, _client = unlocated(here)
    tenant.kill()
    until(lambda: here.engine.state(tenant.id).files == 0, "it is closed")
    assert here.used_mib(tenant) == 0


def test_unlocated_file_ends_with_its_tenant(here: World) -> None:
    """Whatever the driver says of the client."""
    tenant, _client = unlocated(here)
    here.refuses(escape=DUP_OBJECT)
    tenant.kill()
    assert not removed(here, tenant)
    until(lambda: removed(here, tenant), "nothing is left of it")


def test_groups_of_an_unlocated_file_are_known(here: World) -> None:
    tenant, client = of_one_group(here)
    here.restart(lambda: tenant.tell("send", tenant.ctl))
    assert here.used_mib(tenant) == CONTEXT_MIB
    tenant.ctl = int(tenant.tell("receive"))
    free(tenant, client, CHANNEL)
    free(tenant, client, client)
    assert here.used_mib(tenant) == 0


def test_closed_file_is_not_taken_for_unlocated(here: World) -> None:
    tenant, client = here.tenant_client()
    assert allocate(tenant, client) == OK
    here.restart(tenant.kill)
    until(lambda: here.used_mib(tenant) == 0, "its charge has ended")
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")

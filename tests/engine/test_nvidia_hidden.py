"""A control file that no process has when the next mgpud takes over, because it is in a message: it is not gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nvidia_mediated import Tenant, World, world
from registered_steps import CHANNEL, CONTEXT_MIB, freed, of_one_group
from rm_params import CTL, MEMORY, MIB, memory
from watching import removed

from tests.support.waiting import until

OK, INVALID_CLIENT, NO_MEMORY = 0, 0x23, 0x51
HANDLE, SIZE_MIB = 0x100, 48
STATUS = 0x28
DUP_OBJECT = 0x34


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def allocate(tenant: Tenant, client: int, *, fd: int | None = None) -> int:
    """The RM status."""
    return tenant.alloc(client, 0xD0, HANDLE, MEMORY, memory(SIZE_MIB * MIB), fd=fd).u32(STATUS)


def hidden(here: World) -> tuple[Tenant, int]:
    """A tenant that may have 64 MiB and has 48, through a file that is in a message when the next engine begins."""
    tenant = here.tenant(cap_mib=64)
    client = tenant.client()
    assert allocate(tenant, client) == OK
    here.restart(lambda: tenant.tell("send", tenant.ctl))
    return tenant, client


def test_what_was_made_through_it_stays_charged(here: World) -> None:
    tenant, _client = hidden(here)
    assert here.used_mib(tenant) == SIZE_MIB
    other = tenant.open(CTL)
    tenant.ctl = other
    assert allocate(tenant, tenant.client()) == NO_MEMORY
    here.restart()
    assert here.used_mib(tenant) == SIZE_MIB


def test_it_is_known_again_when_it_comes_up(here: World) -> None:
    tenant, client = hidden(here)
    tenant.ctl = int(tenant.tell("receive"))
    freed(tenant, client, HANDLE)
    assert here.used_mib(tenant) == 0
    assert allocate(tenant, client) == OK
    tenant.tell("close", tenant.ctl)
    until(lambda: here.used_mib(tenant) == 0, "it ends as any")


def test_others_do_not_bring_it_up(here: World) -> None:
    tenant, client = hidden(here)
    other = here.tenant()
    assert other.client() != client
    tenant.ctl = tenant.open(CTL)
    assert tenant.free(client, HANDLE).u32(0xC) == INVALID_CLIENT
    assert here.used_mib(tenant) == SIZE_MIB


def test_it_ends_with_its_client(here: World) -> None:
    """Nobody says that the tenant has ended."""
    tenant, _client = hidden(here)
    tenant.kill()
    until(lambda: here.engine.state(tenant.id).files == 0, "it is closed")
    assert here.used_mib(tenant) == 0


def test_it_ends_with_its_tenant(here: World) -> None:
    """Whatever the driver says of the client."""
    tenant, _client = hidden(here)
    here.refuses(escape=DUP_OBJECT)
    tenant.kill()
    assert not removed(here, tenant)
    until(lambda: removed(here, tenant), "nothing is left of it")


def test_its_groups_are_known(here: World) -> None:
    tenant, client = of_one_group(here)
    here.restart(lambda: tenant.tell("send", tenant.ctl))
    assert here.used_mib(tenant) == CONTEXT_MIB
    tenant.ctl = int(tenant.tell("receive"))
    freed(tenant, client, CHANNEL)
    freed(tenant, client, client)
    assert here.used_mib(tenant) == 0


def test_one_that_has_ended_is_gone(here: World) -> None:
    tenant = here.tenant()
    client = tenant.client()
    assert allocate(tenant, client) == OK
    here.restart(tenant.kill)
    until(lambda: here.used_mib(tenant) == 0, "its charge has ended")
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")

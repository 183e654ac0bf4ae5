"""Memory that processes of a container share by SHARE and by their clients' policies."""

import ctypes
import struct

from tests.native.export_steps import (
    FOR_ALL,
    HANDLE,
    NOT_PERMITTED,
    OK,
    OTHER,
    control,
    duplicate,
    free,
    pair,
    share,
)
from tests.native.nvidia_mediated import World
from tests.support import rm_numbers as nv

INHERITED = nv.NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY
FOR_USER, FOR_CLIENT, FOR_PROCESS = 2, 3, 4
REVOKE, COMPOSE = 1, nv.RS_SHARE_ACTION_FLAG_COMPOSE


def test_share_with_everybody_is_recorded_and_made_for_one_client(here: World) -> None:
    first, client, second, other = pair(here)
    assert duplicate(second, other, client) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_ALL) == OK
    assert duplicate(second, other, client) == OK
    told = ctypes.c_uint32.in_dll(here.lib, "on_card_shares").value
    assert told & (1 << FOR_ALL) == 0
    assert told & (1 << FOR_CLIENT)
    assert free(second, other, OTHER) == OK
    assert share(first, client, HANDLE, FOR_ALL, action=REVOKE | COMPOSE) == OK
    assert duplicate(second, other, client) == NOT_PERMITTED
    assert here.used_mib(first) == 48


def test_policies_that_the_driver_judges(here: World) -> None:
    first, client, second, other = pair(here)
    stranger, theirs = here.tenant_client(cap_mib=64)
    assert share(first, client, HANDLE, FOR_USER, action=COMPOSE) == OK
    assert duplicate(second, other, client) == OK
    assert free(second, other, OTHER) == OK
    assert share(first, client, HANDLE, FOR_PROCESS) == OK
    assert duplicate(second, other, client) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_CLIENT, target=theirs) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_CLIENT, target=other) == OK
    assert duplicate(second, other, client) == OK
    # In the place of all: the process itself is no longer in the list.
    assert duplicate(first, first.client(), client, HANDLE, 0x301) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_ALL, mask=2) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_ALL) == OK
    assert duplicate(stranger, theirs, client) == NOT_PERMITTED


def test_clients_share_policy_holds_for_unshared_objects(here: World) -> None:
    first, client, second, other = pair(here)
    everybody = struct.pack("IIHBx", 0, 1, FOR_ALL, 0)
    assert control(first, client, INHERITED, everybody) == (OK, everybody)
    assert ctypes.c_uint32.in_dll(here.lib, "on_card_shares").value & (1 << FOR_ALL) == 0
    assert duplicate(second, other, client) == OK
    assert free(second, other, OTHER) == OK
    assert share(first, client, HANDLE, FOR_PROCESS) == OK
    assert duplicate(second, other, client) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_PROCESS, action=REVOKE | COMPOSE) == OK
    assert duplicate(second, other, client) == NOT_PERMITTED

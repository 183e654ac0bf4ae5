"""What the driver takes for a channel group is charged while nvidia-uvm retains one of its channels."""

import ctypes
import errno
import os
import random
import signal
import struct
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.native.nvidia_mediated import Answer, Tenant, World
from tests.native.retained_steps import (
    CHANNEL,
    GROUP_HANDLE,
    NO_MEMORY,
    REGISTER_STATUS,
    STATUS,
    calls,
    free,
    make_channel,
    make_group,
    of_one_group,
    register,
    registers,
    uvm_initialize_file,
)
from tests.native.rm_params import (
    CARD_CONTEXT_MIB,
    CONTEXT_MIB,
    FREE,
    GROUP,
    HOPPER,
    MEMORY,
    MIB,
    ROOT,
    SHARE,
    UVM,
    UVM_REGISTER_CHANNEL,
    UVM_UNREGISTER_CHANNEL,
    alloc_struct,
    channel,
    cmd,
    group,
    memory,
)
from tests.native.uvm_asked import asked, beside, has_handled
from tests.native.uvm_params import unregister_channel, uvm_register_channel
from tests.support import rm_numbers as nv
from tests.support.waiting import until

OK = 0
ILLEGAL_ACTION = nv.NV_ERR_ILLEGAL_ACTION
INSUFFICIENT_PERMISSIONS = nv.NV_ERR_INSUFFICIENT_PERMISSIONS
INVALID_CHANNEL = nv.NV_ERR_INVALID_CHANNEL
INVALID_CLIENT = nv.NV_ERR_INVALID_CLIENT
INVALID_OBJECT_HANDLE = nv.NV_ERR_INVALID_OBJECT_HANDLE
NOT_SUPPORTED = nv.NV_ERR_NOT_SUPPORTED
INTENT_FREE, INTENT_UVM, INFLIGHT_INTENDED, HEAD_BYTES = 1, 3, 2, 4096
WAIT_S = 60


def prepared(here: World) -> tuple[Tenant, int]:
    """A tenant with a group whose channel nvidia-uvm retains, and its client."""
    tenant, client = of_one_group(here)
    uvm_initialize_file(tenant, tenant.uvm)
    registers(tenant, client)
    assert here.retained == 1
    return tenant, client


def test_unregistered_channel_ends_with_its_group(here: World) -> None:
    tenant, client = prepared(here)
    assert tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(client, CHANNEL)).through
    here.lets_go(tenant, tenant.uvm)
    free(tenant, client, CHANNEL)
    assert here.used_mib(tenant) == CONTEXT_MIB
    free(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0


@pytest.mark.parametrize("above", [CHANNEL, GROUP_HANDLE, 0xD0, 0])
def test_free_unregisters_the_channels(here: World, above: int) -> None:
    tenant, client = prepared(here)
    free(tenant, client, above or client)
    assert (here.retained, here.used_mib(tenant)) == (0, CONTEXT_MIB if above == CHANNEL else 0)
    if above == CHANNEL:
        free(tenant, client, GROUP_HANDLE)
        assert here.used_mib(tenant) == 0


def test_free_leaves_other_channels_registered(here: World) -> None:
    tenant, client = prepared(here)
    make_group(tenant, client, 0x910)
    for handle in (0x911, 0x912):
        make_channel(tenant, client, handle, 0x910)
        registers(tenant, client, handle)
    free(tenant, client, GROUP_HANDLE)
    free(tenant, client, 0x911)
    assert (here.retained, here.unregistered) == (1, 2)


def test_thousand_contexts_are_charged_as_the_first(here: World) -> None:
    """Whether the program unregisters its channels first or leaves that to the driver."""
    tenant, client = prepared(here)
    free(tenant, client, GROUP_HANDLE)
    first = (here.used_mib(tenant), here.engine.state(tenant.id).objects)
    for one in range(1000):
        make_group(tenant, client)
        make_channel(tenant, client)
        registers(tenant, client)
        if one % 2:
            tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(client, CHANNEL))
            here.lets_go(tenant, tenant.uvm)
        free(tenant, client, GROUP_HANDLE)
    assert (here.used_mib(tenant), here.engine.state(tenant.id).objects) == first
    assert (here.used_mib(tenant), here.retained) == (0, 0)


def test_register_channel_gives_the_drivers_answer(here: World) -> None:
    tenant, client = of_one_group(here)
    assert register(tenant, client).u32(REGISTER_STATUS) == ILLEGAL_ACTION
    uvm_initialize_file(tenant, tenant.uvm)
    said = uvm_register_channel(client, CHANNEL)
    answer = tenant.uvm_call(UVM_REGISTER_CHANNEL, said)
    assert (answer.result, answer.through, here.shared) == (0, False, 0)
    assert answer.outer == said[:REGISTER_STATUS] + bytes(8)
    assert register(tenant, client).u32(REGISTER_STATUS) == INVALID_CHANNEL
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_refused_registration_holds_no_charge(here: World) -> None:
    tenant, client = of_one_group(here)
    uvm_initialize_file(tenant, tenant.uvm)
    here.refuses(escape=SHARE)
    assert register(tenant, client).u32(REGISTER_STATUS) == NOT_SUPPORTED
    here.refuses()
    tenant.tell("close", tenant.ctl)
    until(lambda: here.used_mib(tenant) == 0, "its client is gone, and nothing holds the charge")


def test_register_channel_takes_channels_of_its_own_process(here: World) -> None:
    tenant, client = of_one_group(here)
    uvm_initialize_file(tenant, tenant.uvm)
    for handle in (GROUP_HANDLE, client, 0xD0, 0x7777, 0):
        assert register(tenant, client, handle).u32(REGISTER_STATUS) == INVALID_OBJECT_HANDLE
    mate = here.mate(tenant)
    uvm_initialize_file(mate, mate.uvm)
    assert register(mate, client).u32(REGISTER_STATUS) == INSUFFICIENT_PERMISSIONS
    other, _ = of_one_group(here)
    uvm_initialize_file(other, other.uvm)
    assert register(other, client).u32(REGISTER_STATUS) == INVALID_CLIENT
    assert here.retained == 0


def test_unbooked_channel_is_not_registered(here: World) -> None:
    """One that a flipped root client has added to a group."""
    tenant, client = prepared(here)
    params, name = channel(0), 0x777
    flipped = alloc_struct(client, GROUP_HANDLE, name, HOPPER, len(params))
    made = tenant.alloc(0, 0, 0, ROOT, params, flip=flipped)
    assert (made.through, made.u32(STATUS)) == (True, 0)
    assert tenant.uvm_call(UVM_REGISTER_CHANNEL, uvm_register_channel(client, name)).result == -errno.EPERM


def test_raced_registration_is_one_registration(here: World) -> None:
    tenant, client = of_one_group(here)
    make_channel(tenant, client, 0x911)
    uvm_initialize_file(tenant, tenant.uvm)
    at = struct.calcsize("16siI")  # the channel's handle
    tenant.raced(UVM_REGISTER_CHANNEL, uvm_register_channel(client, CHANNEL), at, 0x911)
    assert here.retained == 1
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_unregister_leaves_other_tenants_files_alone(here: World) -> None:
    tenant, client = prepared(here)
    other, theirs = of_one_group(here)
    uvm_initialize_file(other, other.uvm)
    registers(other, theirs)
    free(tenant, client, GROUP_HANDLE)
    assert here.retained == 1
    assert (here.used_mib(tenant), here.used_mib(other)) == (0, CONTEXT_MIB)


def test_two_channels_of_a_group_are_one_charge(here: World) -> None:
    tenant, client = prepared(here)
    make_channel(tenant, client, 0x911)
    registers(tenant, client, 0x911)
    assert here.used_mib(tenant) == CONTEXT_MIB
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def still_retained(here: World, tenant: Tenant, client: int) -> None:
    """The group is freed, and the driver did not let go of its channel."""
    here.uvm_fails(-errno.EAGAIN)
    free(tenant, client, GROUP_HANDLE)
    here.uvm_fails(0)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)


def test_failed_unregistration_is_charged_until_the_file_is_closed(here: World) -> None:
    tenant, client = prepared(here)
    still_retained(here, tenant, client)
    calls(tenant, client)
    assert here.used_mib(tenant) == CONTEXT_MIB
    here.closes_uvm(tenant)
    until(lambda: here.used_mib(tenant) == 0, "the file is closed")


def test_next_channel_of_a_name_ends_both_registrations(here: World) -> None:
    tenant, client = prepared(here)
    still_retained(here, tenant, client)
    make_group(tenant, client)
    make_channel(tenant, client)
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_hold_counts_against_the_cap(here: World) -> None:
    tenant = here.tenant(cap_mib=CARD_CONTEXT_MIB + 17)
    uvm_initialize_file(tenant, tenant.uvm)
    tenant, client = of_one_group(here, tenant)
    registers(tenant, client)
    still_retained(here, tenant, client)
    refused = tenant.alloc(client, 0xD0, GROUP_HANDLE, GROUP, group())
    assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)


def test_audit_finds_memory_beside_holds(here: World) -> None:
    tenant, client = prepared(here)
    still_retained(here, tenant, client)
    flipped = struct.pack("IIIIQQIIII", client, 0xD0, 0x100, MEMORY, 0, 0, 128, 0, 0, 0)
    assert tenant.alloc(0, 0, 0, ROOT, memory(MIB), flip=flipped).through
    assert tenant.free(client, 0x999).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes == MIB


def test_hold_outlives_the_file_of_its_client(here: World) -> None:
    tenant, _client = prepared(here)
    tenant.tell("close", tenant.ctl)
    # Its root and the registration are left.
    until(lambda: here.engine.state(tenant.id).objects == 2, "its client is gone")
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    here.restart()
    assert here.used_mib(tenant) == CONTEXT_MIB
    here.closes_uvm(tenant)
    until(lambda: here.used_mib(tenant) == 0, "so is what was registered")


def test_hold_ends_with_its_process(here: World) -> None:
    tenant, _client = prepared(here)
    tenant.kill()
    until(lambda: here.used_mib(tenant) == 0, "its charges have ended")
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")


def test_exited_children_leave_no_charge_to_their_parent(here: World) -> None:
    tenant, client = prepared(here)
    for _ in range(3):
        program = here.mate(tenant)
        uvm_initialize_file(program, program.uvm)
        _, theirs = of_one_group(here, program)
        registers(program, theirs)
        program.kill()
        until(lambda: here.used_mib(tenant) == CONTEXT_MIB, "what it had has ended")
    calls(tenant, client)


def test_unlocated_file_keeps_the_charge(here: World) -> None:
    tenant, client = prepared(here)
    here.looks(0)
    tenant.tell("send", tenant.uvm)
    until(lambda: here.lost() == (0, 1), "it has been let go, and is not closed")
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    here.restart()
    assert here.used_mib(tenant) == CONTEXT_MIB


def test_unregister_when_group_charge_is_zero(here: World) -> None:
    """Its memory is not known, and its numbers are few."""
    here.context(0)
    tenant, client = prepared(here)
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_registrations_survive_a_restart(here: World) -> None:
    tenant, client = prepared(here)
    here.restart()
    assert here.used_mib(tenant) == CONTEXT_MIB
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_charge_is_held_for_a_file_closed_during_restart(here: World) -> None:
    tenant, _client = prepared(here)
    here.restart(lambda: tenant.tell("close", tenant.ctl))
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    here.closes_uvm(tenant)
    until(lambda: here.used_mib(tenant) == 0, "the file is closed")


def page_of(here: World, tenant: Tenant) -> Path:
    return here.journal / f"listener-{tenant.id}"


def client_file(here: World, tenant: Tenant, client: int) -> int:
    find = here.lib.on_card_client_file
    find.restype = ctypes.c_uint64
    return int(find(here.engine._handle, ctypes.c_uint64(tenant.id), ctypes.c_uint32(client)))


def test_free_that_was_intended_is_made_with_all_that_follows(here: World) -> None:
    """As if the engine had ended in the call: what it wrote down before it asked the driver."""
    tenant, client = prepared(here)
    file = client_file(here, tenant, client)

    def intended() -> None:
        was = struct.pack("IIIIQ", INTENT_FREE, client, 0, GROUP_HANDLE, file)
        here.lib.store_check.restype = ctypes.c_uint32
        check = here.lib.store_check(was, ctypes.c_size_t(len(was)))
        req = struct.pack("QIIiIQ6Q", 1, tenant.pid, 0, 16, 0xC000003E, 0, 0, cmd(FREE, 16), 0, 0, 0, 0)
        with page_of(here, tenant).open("r+b") as journal:
            journal.seek(HEAD_BYTES + 16)
            journal.write(req + struct.pack("II", INFLIGHT_INTENDED, check) + was)

    here.restart(intended)
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


@pytest.mark.parametrize("landed", [False, True])
def test_unanswered_registration_is_answered_after_restart(here: World, landed: bool) -> None:
    """Whether the driver had it by then or not."""
    tenant, client = of_one_group(here)
    uvm_initialize_file(tenant, tenant.uvm)
    if landed:
        registers(tenant, client)
    calls(tenant, client)
    said = uvm_register_channel(client, CHANNEL)
    find = here.lib.on_card_uvm_file
    find.restype = ctypes.c_uint64
    uvm = int(find(here.engine._handle, ctypes.c_uint64(tenant.id)))
    control = client_file(here, tenant, client)
    with beside(tenant) as other:
        waiting: list[Future[Answer]] = []

        def dies() -> None:
            waiting.append(other.submit(tenant.uvm_call, UVM_REGISTER_CHANNEL, said))
            died = here.lib.on_card_died_lending
            words = (ctypes.c_uint64(tenant.id), tenant.listener, ctypes.c_uint64(uvm))
            what = (ctypes.c_uint64(control), UVM_REGISTER_CHANNEL, ctypes.c_uint32(client), GROUP_HANDLE)
            assert died(os.fsencode(here.journal), *words, *what, said, len(said)) == 0

        here.restart(dies)
        answer = waiting[0].result(WAIT_S)
    assert (answer.result, answer.u32(REGISTER_STATUS), answer.through) == (0, OK, False)
    assert (here.shared, here.retained) == (0, 1)
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_interrupted_registration_happens_once(here: World) -> None:
    tenant, client = of_one_group(here)
    uvm_initialize_file(tenant, tenant.uvm)
    calls(tenant, client)
    with asked(here) as (wait, answer), beside(tenant) as other:
        call = other.submit(register, tenant, client)
        wait()
        os.kill(tenant.pid, signal.SIGUSR1)
        until(lambda: has_handled(tenant.pid, signal.SIGUSR1), "it has been torn away")
        answer()
        assert call.result(WAIT_S).u32(REGISTER_STATUS) == OK
    assert here.retained == 1


class Card:
    """The groups that the driver has memory for, by what it and UVM keep: the judge of the account."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.tenant = here.tenant(cap_mib=1 << 16)
        self.client = self.tenant.client()
        self.files = [
            uvm_initialize_file(self.tenant, self.tenant.uvm),
            uvm_initialize_file(self.tenant, self.tenant.open(UVM)),
        ]
        self.group_of: dict[int, int] = {}  # channel → group, of all there ever were
        self.groups: set[int] = set()
        self.channels: set[int] = set()
        self.number = 0x1000

    def handle(self) -> int:
        self.number += 1
        return self.number

    def make_group(self, _chance: random.Random) -> None:
        handle = self.handle()
        make_group(self.tenant, self.client, handle)
        self.groups.add(handle)

    def make_channel(self, chance: random.Random) -> None:
        if self.groups:
            handle, parent = self.handle(), chance.choice(sorted(self.groups))
            make_channel(self.tenant, self.client, handle, parent)
            self.group_of[handle] = parent
            self.channels.add(handle)

    def register(self, chance: random.Random) -> None:
        if self.channels:
            handle = chance.choice(sorted(self.channels))
            register(self.tenant, self.client, handle, fd=chance.choice(self.files))

    def let_go(self, chance: random.Random) -> None:
        """The program unregisters all of a file's."""
        self.here.lets_go(self.tenant, chance.choice(self.files))

    def free_channel(self, chance: random.Random) -> None:
        if self.channels:
            handle = chance.choice(sorted(self.channels))
            free(self.tenant, self.client, handle)
            self.channels.discard(handle)

    def free_group(self, chance: random.Random) -> None:
        if self.groups:
            handle = chance.choice(sorted(self.groups))
            free(self.tenant, self.client, handle)
            self.groups.discard(handle)
            self.channels = {one for one in self.channels if self.group_of[one] != handle}


@pytest.mark.parametrize("seed", range(3))
def test_in_any_order_of_steps_no_memory_is_without_a_charge(here: World, seed: int) -> None:
    chance = random.Random(seed)
    card = Card(here)
    steps = [card.make_group, *[card.make_channel] * 3, *[card.register] * 2, card.let_go]
    steps += [card.free_channel, card.free_group]
    for _ in range(200):
        if chance.random() < 0.03:
            here.restart()
        else:
            chance.choice(steps)(chance)
        kept = {card.group_of[one] for one in card.group_of if here.lib.on_card_retains(card.client, one)}
        assert kept <= card.groups, "nothing is retained of what has ended"
        assert here.used_mib(card.tenant) == CONTEXT_MIB * len(card.groups)

"""Channels that nvidia-uvm retains: in the next engine, without a name, and in any order of steps."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvidia_mediated import Tenant, World, world
from registered_steps import (
    CHANNEL,
    CONTEXT_MIB,
    GROUP_HANDLE,
    STATUS,
    calls,
    channelled,
    freed,
    freed_while_another_registers,
    grouped,
    known,
    of_one_group,
    registers,
)
from rm_params import FREE, HOPPER, ROOT, UVM, UVM_UNREGISTER_CHANNEL, alloc_struct, channel, cmd
from uvm_params import unregister_channel

from tests.support.waiting import until

INTENT_MAKE, INTENT_FREE, CAUGHT_INTENDED, HEAD_BYTES = 0, 1, 2, 4096


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def test_the_next_engine_holds_what_was_held(here: World) -> None:
    tenant, client = freed_while_another_registers(here)
    here.restart()
    assert here.used_mib(tenant) == CONTEXT_MIB
    here.lands(tenant, client, CHANNEL)
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    # Its number is nothing else's.
    grouped(tenant, client, 0x910)
    channelled(tenant, client, 0x911, 0x910)
    freed(tenant, client, 0x911)
    here.restart()
    assert here.used_mib(tenant) == 2 * CONTEXT_MIB
    tenant.tell("join")
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, CONTEXT_MIB)
    freed(tenant, client, 0x910)
    assert here.used_mib(tenant) == 0


def test_the_next_engine_knows_who_registers(here: World) -> None:
    tenant, client = of_one_group(here)
    channelled(tenant, client, 0x911)
    registers(tenant, client, who="aside")
    freed(tenant, client, 0x911)
    here.restart()
    assert here.used_mib(tenant) == CONTEXT_MIB
    freed(tenant, client, GROUP_HANDLE)
    here.lands(tenant, client, CHANNEL)
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    here.restart(lambda: tenant.tell("join"))
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_what_a_file_had_that_closed_while_nobody_served_is_held(here: World) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    here.restart(lambda: tenant.tell("close", tenant.ctl))
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    assert here.engine.state(tenant.id).objects == 0
    tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2))
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_what_ended_while_nobody_served_is_held_no_more(here: World) -> None:
    tenant, _client = freed_while_another_registers(here)
    here.restart(tenant.kill)
    until(lambda: here.used_mib(tenant) == 0, "its charges have ended")


def test_a_journal_without_such_a_file_has_everything_asked(here: World, tmp_path: Path) -> None:
    """One that an earlier version wrote."""
    tenant, client = of_one_group(here)
    known(tenant, tenant.uvm)
    here.lands(tenant, client, CHANNEL)
    here.restart((tmp_path / "journal" / f"registered-{tenant.id}").unlink)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def intended(
    here: World, folder: Path, tenant: Tenant, what: int, client: int, handle: int, parent: int = 0
) -> None:
    """As if the engine, which has ended, had ended in a call: what it wrote down before it asked the driver."""
    objects = (folder / f"tenant-{tenant.id}").read_bytes()
    at = objects.index(struct.pack("III", client, client, 0x41))  # struct rm_object: the client's
    [file] = struct.unpack_from("Q", objects, at + 28)
    page = folder / f"listener-{tenant.id}"
    with page.open("r+b") as journal:
        was = struct.pack("IIIIQ", what, client, parent, handle, file)
        here.lib.store_check.restype = ctypes.c_uint32
        check = here.lib.store_check(was, ctypes.c_size_t(len(was)))
        req = struct.pack("QIIiIQ6Q", 1, tenant.pid, 0, 16, 0xC000003E, 0, 0, cmd(FREE, 16), 0, 0, 0, 0)
        journal.seek(HEAD_BYTES + 16)
        journal.write(req + struct.pack("II", CAUGHT_INTENDED, check) + was)


@pytest.mark.parametrize("handle", [CHANNEL, GROUP_HANDLE])
@pytest.mark.parametrize("who", ["", "aside"])
def test_a_free_that_was_intended_is_made_with_all_that_follows(
    here: World, tmp_path: Path, handle: int, who: str
) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client, who=who)
    here.restart(lambda: intended(here, tmp_path / "journal", tenant, INTENT_FREE, client, handle))
    assert here.engine.state(tenant.id).objects == (4 if handle == CHANNEL else 3)
    assert here.used_mib(tenant) == CONTEXT_MIB
    here.lands(tenant, client, CHANNEL)
    if handle == CHANNEL:
        freed(tenant, client, GROUP_HANDLE)
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == ((1, CONTEXT_MIB) if who else (0, 0))
    tenant.tell("join")
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


class Doubtful:
    """A group to which a flipped root client has added a channel that nobody here knows the name of."""

    NAME = 0x777

    def __init__(self, here: World) -> None:
        self.here = here
        self.tenant, self.client = of_one_group(here)
        self.flip(GROUP_HANDLE)
        registers(self.tenant, self.client, self.NAME)
        here.lands(self.tenant, self.client, self.NAME)
        calls(self.tenant, self.client)

    def flip(self, parent: int) -> None:
        params = channel(0)
        flipped = alloc_struct(self.client, parent, self.NAME, HOPPER, len(params))
        answer = self.tenant.alloc(0, 0, 0, ROOT, params, flip=flipped)
        assert (answer.through, answer.u32(STATUS)) == (True, 0)

    def used_mib(self) -> float:
        return self.here.used_mib(self.tenant)


def test_a_channel_that_was_made_and_not_booked_is_unregistered(here: World, tmp_path: Path) -> None:
    doubtful = Doubtful(here)
    registers(doubtful.tenant, doubtful.client, who="aside")
    made = (INTENT_MAKE, doubtful.client, Doubtful.NAME, GROUP_HANDLE)
    here.restart(lambda: intended(here, tmp_path / "journal", doubtful.tenant, *made))
    assert here.retained == 1
    calls(doubtful.tenant, doubtful.client)
    assert here.retained == 1
    doubtful.tenant.tell("join")
    calls(doubtful.tenant, doubtful.client)
    assert here.retained == 0


def test_a_channel_without_a_name_keeps_the_charge(here: World) -> None:
    doubtful = Doubtful(here)
    freed(doubtful.tenant, doubtful.client, GROUP_HANDLE)
    calls(doubtful.tenant, doubtful.client)
    assert (here.retained, doubtful.used_mib()) == (1, CONTEXT_MIB)
    here.restart()
    assert doubtful.used_mib() == CONTEXT_MIB
    # A file that was opened later has nothing of it.
    later = doubtful.tenant.open(UVM)
    doubtful.tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2), fd=later)
    here.closes_uvm(doubtful.tenant)
    until(lambda: doubtful.used_mib() == 0, "the file is closed")


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_channel_without_a_name_outlives_the_file_of_its_client(here: World, meanwhile: bool) -> None:
    doubtful = Doubtful(here)
    tenant = doubtful.tenant
    if meanwhile:
        here.restart(lambda: tenant.tell("close", tenant.ctl))
    else:
        freed(tenant, doubtful.client, GROUP_HANDLE)
        tenant.tell("close", tenant.ctl)
    until(lambda: here.engine.state(tenant.id).objects == 0, "its client is gone")
    tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2))
    assert (here.retained, doubtful.used_mib()) == (1, CONTEXT_MIB)
    here.restart()
    tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2))
    assert doubtful.used_mib() == CONTEXT_MIB
    here.closes_uvm(tenant)
    until(lambda: doubtful.used_mib() == 0, "the file is closed")


def test_a_client_that_turns_up_ends_the_doubt(here: World) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client)
    second = tenant.alloc(0, 0, 0, ROOT)
    assert second.through
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == CONTEXT_MIB
    calls(tenant, second.u32(8))
    calls(tenant, second.u32(8))
    assert here.used_mib(tenant) == 0


class Card:
    """The groups that the driver has memory for, by what it and UVM keep: the judge of the books."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.tenant = here.tenant(cap_mib=1 << 16)
        self.client = self.tenant.client()
        self.files = [known(self.tenant, self.tenant.uvm), known(self.tenant, self.tenant.open(UVM))]
        self.group_of: dict[int, int] = {}  # channel → group, of all there ever were
        self.groups: set[int] = set()
        self.channels: set[int] = set()
        self.running: list[int] = []  # channels whose registration runs
        self.number = 0x1000

    def handle(self) -> int:
        self.number += 1
        return self.number

    def make_group(self, _chance: random.Random) -> None:
        handle = self.handle()
        grouped(self.tenant, self.client, handle)
        self.groups.add(handle)

    def make_channel(self, chance: random.Random) -> None:
        if not self.groups:
            return
        handle, parent = self.handle(), chance.choice(sorted(self.groups))
        channelled(self.tenant, self.client, handle, parent)
        self.group_of[handle] = parent
        self.channels.add(handle)

    def register(self, chance: random.Random) -> None:
        if not self.channels or len(self.running) > 8:
            return
        said, does = (chance.choice(sorted(self.channels)) for _ in range(2))
        registers(self.tenant, self.client, said, fd=chance.choice(self.files), who="aside")
        self.running.append(does)

    def land(self, chance: random.Random) -> None:
        """One that found its channel, before that ended, is carried to its end."""
        if self.running:
            self.here.lands(self.tenant, self.client, self.running.pop(), chance.choice(self.files))

    def end_threads(self, chance: random.Random) -> None:
        while self.running:
            self.land(chance)
        self.tenant.tell("join")
        calls(self.tenant, self.client)

    def free_channel(self, chance: random.Random) -> None:
        if self.channels:
            handle = chance.choice(sorted(self.channels))
            freed(self.tenant, self.client, handle)
            self.channels.discard(handle)

    def free_group(self, chance: random.Random) -> None:
        if self.groups:
            handle = chance.choice(sorted(self.groups))
            freed(self.tenant, self.client, handle)
            self.groups.discard(handle)
            self.channels = {one for one in self.channels if self.group_of[one] != handle}

    def kept(self) -> set[int]:
        """Groups that have memory."""
        retained = {one for one in self.group_of if self.here.lib.on_card_retains(self.client, one)}
        return self.groups | {self.group_of[one] for one in retained}


@pytest.mark.parametrize("seed", range(3))
def test_in_any_order_of_steps_no_memory_is_without_a_charge(here: World, seed: int) -> None:
    chance = random.Random(seed)
    card = Card(here)
    steps = [card.make_group, *[card.make_channel] * 3, *[card.register] * 2, card.land, card.free_channel]
    steps += [card.free_group]
    for number in range(200):
        if number % 40 == 39:
            card.end_threads(chance)
            assert here.used_mib(card.tenant) == CONTEXT_MIB * len(card.groups)
            assert card.kept() == card.groups
        elif chance.random() < 0.03:
            here.restart()
        else:
            chance.choice(steps)(chance)
        assert here.used_mib(card.tenant) >= CONTEXT_MIB * len(card.kept())

"""Memory that nvidia-uvm has mapped: its charge ends with the last mapping, not with its RM object."""

import ctypes
import errno
import os
import random
import struct

import pytest

from tests.native.external_steps import (
    BASE,
    FREE_STATUS,
    HANDLE,
    INVALID_ADDRESS,
    INVALID_ARGUMENT,
    INVALID_DEVICE,
    MAP_MEMORY,
    MAP_STATUS,
    NO_MEMORY,
    OK,
    SIZE,
    free_mapping,
    map_range,
    unmap_range,
)
from tests.native.nvidia_mediated import Tenant, World
from tests.native.page_tables import BIG_PAGE, HUGE_PAGE, Mapped, charged_bytes, tables_bytes
from tests.native.rm_params import (
    MEMORY,
    MIB,
    ROOT,
    UVM,
    UVM_FREE,
    UVM_MAP_EXTERNAL,
    UVM_UNMAP_EXTERNAL,
    memory,
)
from tests.native.uvm_params import GPU_ONE, GPU_TWO, free_range, map_external, unmap_external
from tests.support import rm_numbers as nv
from tests.support.waiting import until

NOT_PERMITTED, INVALID_CLIENT = nv.NV_ERR_INSUFFICIENT_PERMISSIONS, nv.NV_ERR_INVALID_CLIENT
INVALID_HANDLE, NOT_SUPPORTED = nv.NV_ERR_INVALID_OBJECT_HANDLE, nv.NV_ERR_NOT_SUPPORTED
DUP_OBJECT, SHARE = nv.NV_ESC_RM_DUP_OBJECT, nv.NV_ESC_RM_SHARE
ATTACHED = nv.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS


@pytest.fixture
def here(here: World) -> World:
    here.range(BASE, SIZE)
    return here


def allocate(tenant: Tenant, client: int, handle: int = HANDLE, size: int = SIZE) -> int:
    """The RM status."""
    answer = tenant.alloc(client, 0xD0, handle, MEMORY, memory(size))
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(0x28)


def held(here: World, gpus: tuple[bytes, ...] = (GPU_ONE,)) -> tuple[Tenant, int]:
    """A tenant that may have 64 MiB and has mapped 48 and freed them, and its client."""
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    map_range(tenant, map_external(client, HANDLE, BASE, SIZE, gpus))
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert here.memory_mib(tenant) == 48
    return tenant, client


def test_mapped_memory_stays_charged_after_its_free(here: World) -> None:
    tenant, client = held(here)
    assert allocate(tenant, client) == NO_MEMORY
    assert [use.used_bytes for use in here.engine.processes(tenant.id)] == [SIZE]
    assert unmap_range(tenant) == OK
    assert here.used_mib(tenant) == 0
    assert allocate(tenant, client) == OK
    assert here.memory_mib(tenant) == 48


def test_unmapped_memory_ends_with_its_object(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    for _ in range(3):
        assert allocate(tenant, client) == OK
        map_range(tenant, map_external(client, HANDLE, BASE, SIZE))
        assert unmap_range(tenant) == OK
        assert here.memory_mib(tenant) == 48
        assert tenant.free(client, HANDLE).u32(0xC) == OK
        assert here.used_mib(tenant) == 0


def test_freed_range_ends_its_mappings(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    here.range(BASE + SIZE, MIB)
    for number in range(4):
        assert allocate(tenant, client, HANDLE + number, 12 * MIB) == OK
        map_range(tenant, map_external(client, HANDLE + number, BASE + number * 12 * MIB, 12 * MIB))
    assert allocate(tenant, client, HANDLE + 9, MIB) == OK
    map_range(tenant, map_external(client, HANDLE + 9, BASE + SIZE, MIB))
    for number in (*range(4), 9):
        assert tenant.free(client, HANDLE + number).u32(0xC) == OK
    assert here.memory_mib(tenant) == 49
    assert free_mapping(tenant) == OK
    assert here.memory_mib(tenant) == 1
    assert free_mapping(tenant, BASE + SIZE, MIB) == OK
    assert here.used_mib(tenant) == 0


def test_call_that_the_driver_refuses_ends_nothing(here: World) -> None:
    tenant, _client = held(here)
    assert unmap_range(tenant, gpu=bytes(16)) == INVALID_DEVICE
    assert unmap_range(tenant, size=2 * SIZE) == INVALID_ADDRESS
    assert free_mapping(tenant, size=SIZE - 4096) == INVALID_ADDRESS
    assert free_mapping(tenant, BASE + 4096, SIZE - 4096) == INVALID_ADDRESS
    assert here.memory_mib(tenant) == 48


def test_unmap_on_one_gpu_keeps_the_other(here: World) -> None:
    tenant, _client = held(here, gpus=(GPU_ONE, GPU_TWO))
    assert unmap_range(tenant) == OK
    assert here.memory_mib(tenant) == 48
    assert unmap_range(tenant, gpu=GPU_TWO) == OK
    assert here.used_mib(tenant) == 0


def test_charge_ends_when_every_part_is_unmapped(here: World) -> None:
    tenant, _client = held(here)
    part = 16 * MIB
    for number in (1, 0, 2):
        assert here.memory_mib(tenant) == 48
        assert unmap_range(tenant, BASE + number * part, part) == OK
    assert here.used_mib(tenant) == 0


def test_new_mapping_replaces_the_previous_at_its_address(here: World) -> None:
    tenant, client = held(here)
    assert allocate(tenant, client, HANDLE + 1, MIB) == OK
    map_range(tenant, map_external(client, HANDLE + 1, BASE, MIB))
    assert tenant.free(client, HANDLE + 1).u32(0xC) == OK
    # The rest of the first still keeps all of it.
    assert here.memory_mib(tenant) == 49
    assert allocate(tenant, client, HANDLE + 2, MIB) == OK
    map_range(tenant, map_external(client, HANDLE + 2, BASE, SIZE))
    assert here.memory_mib(tenant) == 1
    map_range(tenant, map_external(client, HANDLE + 2, BASE, SIZE))
    assert tenant.free(client, HANDLE + 2).u32(0xC) == OK
    assert here.memory_mib(tenant) == 1
    assert unmap_range(tenant) == OK
    assert here.used_mib(tenant) == 0


def test_mapping_that_the_driver_refuses_holds_nothing(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    map_range(tenant, map_external(client, HANDLE, BASE, MIB))
    for params, status in (
        (map_external(client, HANDLE, BASE, 2 * SIZE), INVALID_ADDRESS),
        (map_external(client, HANDLE, BASE, SIZE, (GPU_ONE, bytes(16))), INVALID_DEVICE),
    ):
        answer = tenant.uvm_call(UVM_MAP_EXTERNAL, params)
        assert (answer.result, answer.through, answer.u32(MAP_STATUS)) == (0, False, status)
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert here.memory_mib(tenant) == 48
    assert unmap_range(tenant, BASE, MIB) == OK
    assert here.used_mib(tenant) == 0


def test_racing_replacement_is_not_mapped_uncharged(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    for _ in range(20):
        for number, size in enumerate((MIB, 40 * MIB)):
            assert allocate(tenant, client, HANDLE + number, size) == OK
        answer = tenant.raced(
            UVM_MAP_EXTERNAL, map_external(client, HANDLE, BASE, MIB), MAP_MEMORY, HANDLE + 1
        )
        assert (answer.result, answer.through, answer.u32(MAP_STATUS)) == (0, False, OK)
        for number in range(2):
            assert tenant.free(client, HANDLE + number).u32(0xC) == OK
        assert here.memory_mib(tenant) == (1 if here.mapped == HANDLE else 40)
        assert unmap_range(tenant) == OK
        assert here.used_mib(tenant) == 0


def test_memory_is_shared_during_the_call_only(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    map_range(tenant, map_external(client, HANDLE, BASE, SIZE))
    assert here.shared == 0
    refused = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, BASE, 2 * SIZE))
    assert (refused.result, refused.u32(MAP_STATUS)) == (0, INVALID_ADDRESS)
    assert here.shared == 0


def test_unshareable_memory_is_not_mapped(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    here.refuses(escape=SHARE)
    refused = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, BASE, SIZE))
    assert (refused.result, refused.through, refused.u32(MAP_STATUS)) == (0, False, NOT_SUPPORTED)
    assert here.mapped == 0
    here.refuses()
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert here.used_mib(tenant) == 0


def test_death_during_a_mapping_leaves_nothing_shared(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    find = here.lib.on_card_client_file
    find.restype = ctypes.c_uint64
    file = find(here.engine._handle, ctypes.c_uint64(tenant.id), ctypes.c_uint32(client))

    def died() -> None:
        journal, listener = os.fsencode(here.journal), ctypes.c_uint64(tenant.id)
        assert here.lib.on_card_died_mapping(journal, listener, ctypes.c_uint64(file), client, HANDLE) == 1

    here.restart(died)
    assert here.shared == 0
    map_range(tenant, map_external(client, HANDLE, BASE, SIZE))


def test_memory_of_another_process_is_not_mapped(here: World) -> None:
    """As UVM has it by itself: what a process has is its own, also within a container."""
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    other = here.tenant(cap_mib=64)
    other.client()
    answer = other.uvm_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, BASE, SIZE))
    assert (answer.result, answer.through, answer.u32(MAP_STATUS)) == (0, False, INVALID_CLIENT)
    answer = tenant.child_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, BASE, SIZE))
    assert (answer.result, answer.through, answer.u32(MAP_STATUS)) == (0, False, NOT_PERMITTED)
    assert here.shared == 0


def test_handle_that_comes_again_is_other_memory(here: World) -> None:
    tenant, client = held(here)
    assert allocate(tenant, client, HANDLE, 8 * MIB) == OK
    assert here.memory_mib(tenant) == 56
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert here.memory_mib(tenant) == 48


def test_memory_of_two_names_is_held_after_the_last(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    outer = struct.pack("7I", client, 0xD0, HANDLE + 1, client, HANDLE, 0, 0)
    assert tenant.ioctl(tenant.ctl, DUP_OBJECT, outer).u32(0x18) == OK
    map_range(tenant, map_external(client, HANDLE, BASE, SIZE))
    for handle in (HANDLE, HANDLE + 1):
        assert here.memory_mib(tenant) == 48
        assert tenant.free(client, handle).u32(0xC) == OK
    assert here.memory_mib(tenant) == 48
    assert unmap_range(tenant) == OK
    assert here.used_mib(tenant) == 0


@pytest.mark.parametrize("above", [0xD0, 0])
def test_end_of_a_parent_ends_the_memory(here: World, above: int) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    map_range(tenant, map_external(client, HANDLE, BASE, SIZE))
    assert tenant.free(client, above or client).u32(0xC) == OK
    assert here.memory_mib(tenant) == 48
    assert free_mapping(tenant) == OK
    assert here.used_mib(tenant) == 0


def test_charge_outlives_the_file_of_its_client(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    map_range(tenant, map_external(client, HANDLE, BASE, SIZE))
    tenant.tell("close", tenant.ctl)
    until(lambda: here.engine.state(tenant.id).objects == 0, "its client is gone")
    assert here.memory_mib(tenant) == 48
    here.looks(0)
    tenant.tell("close", tenant.uvm)
    until(lambda: here.used_mib(tenant) == 0, "so are its mappings")


def test_charge_ends_with_the_last_descriptor_of_the_file(here: World) -> None:
    tenant, _client = held(here)
    other = tenant.open(UVM)
    copy = int(tenant.tell("dup", tenant.uvm))
    here.range(2 * BASE, MIB)
    tenant.tell("close", tenant.uvm)
    # Another file where it was, and a range at the same address of that one.
    assert tenant.open(UVM) == tenant.uvm
    assert tenant.uvm_call(UVM_FREE, free_range(2 * BASE, MIB)).u32(FREE_STATUS) == OK
    assert unmap_range(tenant) == OK
    assert here.memory_mib(tenant) == 48
    here.looks(0)
    tenant.tell("close", copy)
    until(lambda: here.used_mib(tenant) == 0, "its last descriptor is closed")
    assert tenant.uvm_call(UVM_UNMAP_EXTERNAL, unmap_external(BASE, SIZE), fd=other).result == 0


def test_charge_ends_with_its_process(here: World) -> None:
    tenant, _client = held(here)
    tenant.kill()
    until(lambda: here.used_mib(tenant) == 0, "its charges have ended")
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")


def test_holds_and_mappings_survive_a_restart(here: World) -> None:
    tenant, client = held(here, gpus=(GPU_ONE, GPU_TWO))
    here.range(2 * BASE, SIZE)
    assert allocate(tenant, client, HANDLE, 8 * MIB) == OK
    map_range(tenant, map_external(client, HANDLE, 2 * BASE, 8 * MIB))
    here.restart()
    assert here.memory_mib(tenant) == 56
    assert allocate(tenant, client, HANDLE + 1, 16 * MIB) == NO_MEMORY
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert here.memory_mib(tenant) == 56
    # Its number is nothing else's.
    assert allocate(tenant, client, HANDLE, 4 * MIB) == OK
    map_range(tenant, map_external(client, HANDLE, 2 * BASE + 8 * MIB, 4 * MIB))
    assert unmap_range(tenant, 2 * BASE, 8 * MIB) == OK
    assert here.memory_mib(tenant) == 52
    here.restart()
    assert unmap_range(tenant) == OK
    assert here.memory_mib(tenant) == 52
    assert unmap_range(tenant, gpu=GPU_TWO) == OK
    assert here.memory_mib(tenant) == 4


def test_full_table_refuses_the_next_mapping(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=2048)
    assert allocate(tenant, client) == OK
    gpus = tuple(struct.pack("IIQ", 1 + 2 * number, 0, 0) for number in range(256))
    for number in range(256):
        map_range(tenant, map_external(client, HANDLE, BASE + number * 4096, 4096, gpus))
    # Those that it has are not counted twice.
    map_range(tenant, map_external(client, HANDLE, BASE, 4096, gpus))
    refused = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, BASE + MIB, 4096))
    assert (refused.result, refused.through, refused.u32(MAP_STATUS)) == (0, False, NO_MEMORY)
    assert unmap_range(tenant, BASE, 4096, gpus[0]) == OK
    map_range(tenant, map_external(client, HANDLE, BASE + MIB, 4096))
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert here.memory_mib(tenant) == 48
    assert free_mapping(tenant) == OK
    assert here.used_mib(tenant) == 0


def test_mappings_that_make_no_sense_are_refused(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    assert allocate(tenant, client) == OK
    for params, status in (
        (map_external(client, HANDLE, BASE, 0), INVALID_ADDRESS),
        (map_external(client, HANDLE, (1 << 64) - 4096, 8192), INVALID_ADDRESS),
        (map_external(client, HANDLE, BASE, SIZE, ()), INVALID_ARGUMENT),
    ):
        refused = tenant.uvm_call(UVM_MAP_EXTERNAL, params)
        assert (refused.result, refused.through, refused.u32(MAP_STATUS)) == (0, False, status)
    unknown = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, 0xBAD, BASE, SIZE))
    assert (unknown.result, unknown.through, unknown.u32(MAP_STATUS)) == (0, False, INVALID_HANDLE)
    device = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, 0xD0, BASE, SIZE))
    assert (device.result, device.through, device.u32(MAP_STATUS)) == (0, False, INVALID_HANDLE)
    on_another = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, BASE, SIZE), fd=tenant.ctl)
    assert on_another.result == -errno.ENOTTY


def test_audit_finds_memory_beside_holds(here: World) -> None:
    """The driver counts it to no process: as much again without a charge is still too much."""
    tenant, client = held(here)
    flipped = struct.pack("IIIIQQIIII", client, 0xD0, HANDLE, MEMORY, 0, 0, 128, 0, 0, 0)
    answer = tenant.alloc(0, 0, 0, ROOT, memory(MIB), flip=flipped)
    assert (answer.result, answer.through) == (0, True)
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes == MIB


class Memories:
    """What is mapped where, as UVM has it, in pages of one range: the judge of the account."""

    def __init__(self, here: World, tenant: Tenant, client: int) -> None:
        self.here, self.tenant, self.client = here, tenant, client
        self.number = 0
        self.names: dict[int, int] = {}  # handle → memory
        self.pages: dict[int, int] = {}  # memory → MiB
        # (memory, page, GPU, bytes of the pages that it is mapped by)
        self.mapped: set[tuple[int, int, bytes, int]] = set()

    def handle(self) -> int:
        self.number += 1
        return 0x1000 + self.number

    def allocate(self, chance: random.Random) -> None:
        handle, size = self.handle(), chance.choice((1, 2, 4))
        assert allocate(self.tenant, self.client, handle, size * MIB) == OK
        self.names[handle] = self.number
        self.pages[self.number] = size

    def second_name(self, chance: random.Random) -> None:
        of, handle = chance.choice(list(self.names)), self.handle()
        outer = struct.pack("7I", self.client, 0xD0, handle, self.client, of, 0, 0)
        assert self.tenant.ioctl(self.tenant.ctl, DUP_OBJECT, outer).u32(0x18) == OK
        self.names[handle] = self.names[of]

    def map(self, chance: random.Random) -> None:
        handle, at = chance.choice(list(self.names)), chance.randrange(8)
        size = chance.choice((1, 2, 4))
        gpus = chance.choice(((GPU_ONE,), (GPU_TWO,), (GPU_ONE, GPU_TWO)))
        params = map_external(self.client, handle, BASE + at * MIB, size * MIB, gpus)
        map_range(self.tenant, params)
        taken = {(page, gpu) for page in range(at, at + size) for gpu in gpus}
        self.mapped = {one for one in self.mapped if one[1:3] not in taken}
        memory = self.names[handle]
        # RM gives memory of 2 MiB and more in pages of that size, and smaller memory in pages of 64 KiB.
        huge = self.pages[memory] >= 2 and at % 2 == size % 2 == 0
        by = HUGE_PAGE if huge else BIG_PAGE
        self.mapped |= {(memory, page, gpu, by) for page, gpu in taken}

    def unmap(self, chance: random.Random) -> None:
        at, size, gpu = chance.randrange(10), chance.choice((1, 2, 6)), chance.choice((GPU_ONE, GPU_TWO))
        assert unmap_range(self.tenant, BASE + at * MIB, size * MIB, gpu) == OK
        self.mapped = {one for one in self.mapped if one[2] != gpu or not at <= one[1] < at + size}

    def free(self, chance: random.Random) -> None:
        handle = chance.choice(list(self.names))
        assert self.tenant.free(self.client, handle).u32(0xC) == OK
        del self.names[handle]

    def free_range(self, _chance: random.Random) -> None:
        assert free_mapping(self.tenant) == OK
        self.here.range(BASE, SIZE)
        self.mapped.clear()

    def tables(self) -> list[Mapped]:
        return [Mapped(gpu, BASE + page * MIB, MIB, by) for _memory, page, gpu, by in self.mapped]

    def used_mib(self) -> int:
        alive = {*self.names.values(), *(memory for memory, *_where in self.mapped)}
        return sum(self.pages[memory] for memory in alive)


@pytest.mark.parametrize("seed", range(3))
def test_random_steps_are_charged_as_the_driver_keeps_memory(here: World, seed: int) -> None:
    chance = random.Random(seed)
    tenant = here.tenant(cap_mib=4096)
    books = Memories(here, tenant, tenant.client())
    for _ in range(200):
        steps = [books.allocate]
        if books.names:
            steps += [books.second_name, books.map, books.map, books.free, books.free]
        steps += [books.unmap, books.unmap]
        if chance.random() < 0.02:
            books.free_range(chance)
        elif chance.random() < 0.03:
            here.restart()
        else:
            chance.choice(steps)(chance)
        assert here.memory_mib(tenant) == books.used_mib()
        tables = books.tables()
        assert tables_bytes(tables) <= here.tables_mib(tenant) * MIB <= charged_bytes(tables)

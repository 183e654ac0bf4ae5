"""What the driver takes by itself, beside what mgpu charges for it: docs/nvidia-memory.md."""

import struct

from lab.claims import decides
from lab.tests.answers import CHANNEL_MADE, OWN_SPACE, REGISTERED
from lab.tests.groups import NONE_TAKEN, Working, channel, group
from lab.tests.nv import DEVICE, IS_VIRTUAL, LAZY, MIB, SPACE, SPARSE, VIRTUAL, Client, memory, vaspace
from lab.tests.uvm import BASE, Registered
from tests.support.rm_numbers import FERMI_CONTEXT_SHARE_A

SPARSE_BYTES, FIXED, NOWHERE = 8 << 30, 0x10, 1 << 60
# nvidia_reserved_tables(SPARSE_BYTES), and the same without its tables for pages of 64 KiB.
CHARGED, LEAST = 274 << 16, 16 * MIB
CHANNELS, CHANNELS_BYTES = 128, 129 << 16
# So far apart that two mappings share no directory but the uppermost two.
APART, MAPPINGS = 1 << 38, 400
EACH_CHARGED, EACH_TAKEN = 5 * 4096, 3 * 4096
# nvidia-uvm takes memory for its tables by blocks of this size.
UVM_BLOCK = 2 * MIB


@decides(
    "what RM reserves for sparse memory is what is charged, and a failed call leaves it in the pool",
    whatever=OWN_SPACE,
)
def sparse_reserves_its_tables() -> None:
    client = Client()
    own = client.must_alloc(DEVICE, SPACE, vaspace(flags=0, base=0, size=0))
    client.must_alloc(DEVICE, VIRTUAL, memory(MIB, flags=IS_VIRTUAL | LAZY, vaspace=own))
    before = client.free_bytes()
    nowhere = bytearray(memory(SPARSE_BYTES, flags=IS_VIRTUAL | SPARSE | FIXED, vaspace=own))
    struct.pack_into("<Q", nowhere, 0x50, NOWHERE)
    assert client.alloc(DEVICE, VIRTUAL, bytes(nowhere))[0] != 0
    left = before - client.free_bytes()
    assert LEAST <= left <= CHARGED, left
    handle = client.must_alloc(DEVICE, VIRTUAL, memory(SPARSE_BYTES, flags=IS_VIRTUAL | SPARSE, vaspace=own))
    assert before - client.free_bytes() <= CHARGED, "what lies in the pool is used"
    assert client.free(handle) == 0
    client.close()


@decides(
    "128 channels of a group take 8256 KiB: 64 KiB each and as much ahead, "
    "which stay when all but one have ended",
    whatever=CHANNEL_MADE,
    limit_s=120,
    not_on=NONE_TAKEN,
)
def channels_of_a_group() -> None:
    work = Working()
    client, in_space = work.client, struct.pack("<III", work.on.vaspace, 1, 0)
    parent = group(client)
    share = client.must_alloc(parent, FERMI_CONTEXT_SHARE_A, in_space)
    before = client.free_bytes()
    made = [channel(client, parent, share, work.area, work.errors) for _ in range(CHANNELS + 1)]
    assert [status for status, _ in made[:CHANNELS]] == [0] * CHANNELS, made
    assert made[CHANNELS][0] != 0, "a group has no more"
    assert before - client.free_bytes() == CHANNELS_BYTES, before - client.free_bytes()
    for _, handle in made[1:CHANNELS]:
        assert client.free(handle) == 0
    assert before - client.free_bytes() == CHANNELS_BYTES, before - client.free_bytes()


@decides("external mappings take the tables that are charged", whatever=REGISTERED, limit_s=120)
def tables_of_external_mappings() -> None:
    one = Registered()
    page = one.client.memory(4096, attr=1 << 23)
    before = one.client.free_bytes()
    for number in range(MAPPINGS):
        at = BASE + number * APART
        assert one.uvm.create_range(at, 4096) == 0, number
        assert one.map(page, at, 4096) == 0, number
    taken = before - one.client.free_bytes()
    assert MAPPINGS * EACH_TAKEN - UVM_BLOCK <= taken <= MAPPINGS * EACH_CHARGED + UVM_BLOCK, taken
    one.close()

"""Duplicates of a client's memory."""

import struct

from tests.sim.card_protocol import OK, Client
from tests.support.rm_numbers import NV_ESC_RM_DUP_OBJECT as DUP_OBJECT

MIB = 1 << 20
DUP_STRUCT = struct.Struct("<7I")


def dup(
    to: Client, source: Client, memory: int, *, parent: int | None = None, handle: int = 0
) -> tuple[int, int]:
    """(RM status, handle)."""
    above = to.device if parent is None else parent
    outer = DUP_STRUCT.pack(to.root, above, handle, source.root, memory, 0, 0xDEAD)
    fields = DUP_STRUCT.unpack(to.connection.escape(to.file.id, DUP_OBJECT, outer))
    return fields[6], fields[2]


def memory(client: Client) -> int:
    status, handle = client.memory(MIB)
    assert status == OK
    return handle

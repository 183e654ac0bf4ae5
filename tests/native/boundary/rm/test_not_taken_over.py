"""An unrecovered tenant: the next engine cannot take its account over, and no other gets what it has in the
driver.
"""

import errno
import struct
from ctypes import create_string_buffer
from pathlib import Path

import pytest

from tests.native.books import RmObject
from tests.native.nvidia_mediated import World
from tests.native.retained_steps import ATTACHED, GROUP_HANDLE, make, working_group
from tests.native.rm_params import CONTEXT_MIB, GROUP, MEMORY, MIB, memory
from tests.native.watching import removed
from tests.support.waiting import until

CHECK_BYTES = 4


def spoil(here: World, journal: Path, client: int) -> None:
    """The group's record is not one, so its channel has nothing to belong to."""
    data = bytearray(journal.read_bytes())
    at = data.index(struct.pack("III", client, GROUP_HANDLE, GROUP)) - CHECK_BYTES
    struct.pack_into("I", data, at + RmObject.class_id.offset, MEMORY)
    record = bytes(data[at + CHECK_BYTES : at + RmObject.memory.offset])
    here.lib.store_check.restype = int
    check = here.lib.store_check(create_string_buffer(record, len(record)), len(record))
    struct.pack_into("I", data, at, check & 0xFFFFFFFF)
    journal.write_bytes(data)


def test_unrecovered_tenant_keeps_files_and_journal(here: World, tmp_path: Path) -> None:
    lost, other = here.tenant(cap_mib=512), here.tenant()
    client, well = lost.client(), other.client()
    working_group(lost, client)
    make(lost, client, 0xD0, 0x100, MEMORY, memory(16 * MIB))
    make(other, well, 0xD0, 0x100, MEMORY, memory(32 * MIB))
    # A control file that only a mapping was made on is not found again.
    here.restart()
    files = {each.id: here.engine.state(each.id).files for each in (lost, other)}
    journal = tmp_path / "journal" / f"tenant-{lost.id}"
    before = b""

    def meanwhile() -> None:
        nonlocal before
        before = journal.read_bytes()
        spoil(here, journal, client)

    here.restart(meanwhile, without=lost)
    # It is no tenant, and no second one of that number is made with an empty account.
    with pytest.raises(OSError, match="No such file"):
        here.engine.state(lost.id)
    with pytest.raises(OSError, match="File exists"):
        here.engine.add_tenant(lost.id)
    assert here.engine.state(other.id).files == files[other.id]
    assert here.used_mib(other) == 32
    # What the other is handed of it: its process, with its own files, heard as the other.
    lost.serve(other.id)
    assert lost.control(client, client, ATTACHED, bytes(128)).result == -errno.EPERM
    assert lost.alloc(client, 0xD0, 0x101, MEMORY, memory(MIB)).result == -errno.EPERM
    assert here.engine.state(other.id).files == files[other.id]
    with pytest.raises(OSError, match="busy"):
        here.engine.remove_tenant(lost.id)
    assert journal.exists()
    # The next engine has the journal, and in this case finds it whole.
    here.restart(lambda: journal.write_bytes(before))
    assert here.used_mib(lost) == CONTEXT_MIB + 16
    assert here.engine.state(lost.id).files == files[lost.id]


def test_unrecovered_tenant_leaves_no_record_at_its_end(here: World, tmp_path: Path) -> None:
    lost, other = here.tenant(), here.tenant()
    client, well = lost.client(), other.client()
    working_group(lost, client)
    files = here.engine.state(other.id).files
    journal = tmp_path / "journal" / f"tenant-{lost.id}"
    here.restart(lambda: spoil(here, journal, client), without=lost)

    assert not removed(here, lost)
    lost.kill()
    until(lambda: removed(here, lost), "its files are gone")
    assert not journal.exists()
    assert here.engine.state(other.id).files == files
    assert other.control(well, well, ATTACHED, bytes(128)).result == 0
    # Its slot is free, and the next tenant begins with nothing.
    after = here.tenant()
    assert here.used_mib(after) == 0
    other.kill()
    until(lambda: here.engine.state(other.id).files == 0, "the other's are gone too")
    until(lambda: here.engine.state(other.id).listeners == 0, "nobody calls")
    here.engine.remove_tenant(other.id)

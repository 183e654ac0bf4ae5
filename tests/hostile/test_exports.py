"""Attempts to have memory that no tenant is charged for, by open files that it is exported through."""

from pathlib import Path

from tests.hostile.siege import MIB, Siege
from tests.support import host
from tests.support import rm_numbers as nv
from tests.support.waiting import until

NOT_PERMITTED, INVALID_PARAMETER = nv.NV_ERR_INSUFFICIENT_PERMISSIONS, nv.NV_ERR_INVALID_PARAMETER
NO_MEMORY, NOT_SUPPORTED = nv.NV_ERR_NO_MEMORY, nv.NV_ERR_NOT_SUPPORTED
NOT_FOUND = nv.NV_ERR_OBJECT_NOT_FOUND
EXPORTED_MAX, OBJECTS_MAX = 16384, 65536


def test_import_by_another_container_is_refused(siege: Siege) -> None:
    with host.home("hand") as folder:
        shared = Path(folder)
        with siege.attempt("exports", "send", "/shared/s", shared=shared) as sender:
            assert sender.line() == "listens"
            with siege.attempt("exports", "receive", "/shared/s", shared=shared) as receiver:
                assert receiver.numbers() == [NOT_PERMITTED] * 3
                assert sender.line() == "sent"
                assert receiver.used_bytes == 0
                assert sender.used_bytes == 8 * MIB == siege.counts_agree()
                sender.kill()
                sender.running.process.wait()
                # The receiver has the file, which no other can take anything from.
                assert siege.counts_agree() == 8 * MIB
                siege.neighbour_is_well()


def test_exports_are_limited(siege: Siege) -> None:
    with siege.attempt("exports", "many") as many:
        exported, status = many.numbers()
        assert (exported // 1000, status) == (EXPORTED_MAX // 1000, NO_MEMORY)
        assert many.used_bytes == MIB == siege.counts_agree()
        siege.neighbour_is_well()
        many.running.tell()
        assert many.line() == "closed"
        assert many.used_bytes == MIB == siege.counts_agree()
        many.running.tell()
        assert many.line() == "freed"
        until(lambda: many.used_bytes == 0, "the files are gone")
        assert siege.counts_agree() == 0


def test_descriptor_that_is_left_in_a_message(siege: Siege) -> None:
    with siege.attempt("exports", "message") as message:
        assert message.line() == "made"
        assert message.used_bytes == 4 * MIB == siege.counts_agree()
        message.running.tell()
        assert message.line() == "dropped"
        until(lambda: message.used_bytes == 0, "the message is gone")
        assert siege.counts_agree() == 0


def test_freed_memory_cannot_be_exported(siege: Siege) -> None:
    with siege.attempt("exports", "freed") as freed:
        assert freed.numbers() == [NOT_FOUND, NOT_SUPPORTED, NOT_SUPPORTED, INVALID_PARAMETER]
        assert freed.used_bytes == 0 == siege.counts_agree()


def test_imports_are_limited(siege: Siege) -> None:
    with siege.attempt("exports", "imports") as imports:
        imported, status = imports.numbers()
        assert imported < OBJECTS_MAX
        assert (imported // 100, status) == ((OBJECTS_MAX - 10) // 100, NO_MEMORY)
        assert imports.used_bytes == MIB == siege.counts_agree()
        siege.neighbour_is_well()


def test_thread_that_changes_what_is_named(siege: Siege) -> None:
    with siege.attempt("exports", "flip") as flip:
        [calls] = flip.numbers()
        assert calls >= 500
        assert flip.used_bytes == 3 * MIB == siege.counts_agree()
        siege.neighbour_is_well()

"""The journal: what the next mgpud makes of a killed one's account, and files that are not to be trusted."""

import ctypes
import errno
import os
import random
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, byref, c_int64, c_void_p, sizeof
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.books import OBJECTS, Objects, RmObject, Store

ENDED = CFUNCTYPE(None, c_void_p, c_void_p)
IGNORE = ENDED(lambda _context, _obj: None)
HEAD_BYTES, BOOT_AT, BOOT_BYTES = 4096, 24, 40


@contextmanager
def folder_fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


class Account:
    """A tenant's objects in a journal."""

    def __init__(self, core: ctypes.CDLL, folder: int) -> None:
        self.core = core
        self.store, self.objects = Store(), Objects()
        core.objects_add.restype = c_int64
        result = core.store_open(byref(self.store), folder, b"tenant-1", byref(OBJECTS))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        assert core.objects_init(byref(self.objects), byref(self.store), ctypes.c_size_t(0)) == 0
        if self.store.found:
            assert core.objects_recover(byref(self.objects)) == 0

    def close(self) -> None:
        self.core.objects_destroy(byref(self.objects))
        self.core.store_close(byref(self.store))

    def make(self, parent: int, client: int, handle: int, size: int) -> int:
        slot = int(self.core.objects_add(byref(self.objects), parent, client, handle, 0x40))
        if slot > 0:
            self.objects.slot[slot].memory_bytes = self.objects.slot[slot].bytes = size
            self.core.objects_commit(byref(self.objects), slot)
        return slot

    def alias(self, parent: int, source: int, client: int, handle: int) -> int:
        slot = int(self.core.objects_add(byref(self.objects), parent, client, handle, 0x40))
        self.core.objects_alias(byref(self.objects), source, slot)
        self.core.objects_commit(byref(self.objects), slot)
        return slot

    def drop(self, slot: int) -> None:
        self.core.objects_drop(byref(self.objects), slot, IGNORE, None)

    def find(self, client: int, handle: int) -> int:
        return int(self.core.objects_find(byref(self.objects), client, handle))

    def seen(self) -> dict[tuple[int, int], tuple[int, int]]:
        """(client, handle) → (the parent's handle, the size of its memory), by a walk over the tree."""
        slots, found, at = self.objects.slot, {}, 0
        while at := self.core.objects_next(byref(self.objects), 0, at):
            one = slots[at]
            parent = slots[one.parent].handle if one.parent else 0
            found[one.client, one.handle] = (parent, one.memory_bytes)
            assert self.find(one.client, one.handle) == at
        assert len(found) == self.objects.live
        return found

    def charged(self) -> int:
        slots, total, at = self.objects.slot, 0, 0
        while at := self.core.objects_next(byref(self.objects), 0, at):
            total += slots[at].bytes
        return int(total)


@pytest.fixture
def account(core: ctypes.CDLL, tmp_path: Path) -> Iterator[Callable[[], Account]]:
    made: list[Account] = []
    with folder_fd(tmp_path) as folder:

        def make() -> Account:
            made.append(Account(core, folder))
            return made[-1]

        yield make
        for each in made:
            each.close()


steps = st.lists(
    st.tuples(st.sampled_from(["make", "make", "alias", "drop"]), st.integers(0, 999), st.integers(1, 99)),
    max_size=60,
)


@settings(max_examples=100)
@given(steps=steps)
def test_account_survives_a_restart(
    core: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    with folder_fd(tmp_path_factory.mktemp("journal")) as folder:
        first = Account(core, folder)
        for number, (what, pick, size) in enumerate(steps):
            live = list(first.seen())
            name = (1 + pick % 3, 100 + number)
            parents = [first.find(*each) for each in live if each[0] == name[0]]
            if what == "drop" and live:
                first.drop(first.find(*live[pick % len(live)]))
            elif what == "alias" and live and parents:
                first.alias(parents[pick % len(parents)], first.find(*live[pick % len(live)]), *name)
            elif what == "make":
                first.make(parents[pick % len(parents)] if parents and pick % 4 else 0, *name, size)
        seen, charged = first.seen(), first.charged()
        second = Account(core, folder)
        assert second.seen() == seen
        assert second.charged() == charged
        # It goes on where the first was: no slot is given out twice, none is lost.
        for handle in range(5000, 5040):
            assert second.make(0, 9, handle, 1) > 0
        assert len(second.seen()) == len(seen) + 40
        first.close()
        second.close()


def test_uncommitted_object_is_not_recovered(account: Callable[[], Account]) -> None:
    first = account()
    root = first.make(0, 1, 1, 0)
    assert first.core.objects_add(byref(first.objects), root, 1, 2, 0x40) > 0
    assert account().seen() == {(1, 1): (0, 0)}


def test_alias_takes_over_the_charge(account: Callable[[], Account]) -> None:
    first = account()
    root = first.make(0, 1, 1, 0)
    memory = first.make(root, 1, 2, 64)
    first.alias(root, memory, 1, 3)
    first.alias(root, memory, 1, 4)
    first.drop(memory)
    second = account()
    assert second.charged() == 64
    second.drop(second.find(1, 3))
    assert account().charged() == 64
    second.drop(second.find(1, 4))
    assert account().charged() == 0


def test_altered_records_are_dropped_with_all_below(account: Callable[[], Account], tmp_path: Path) -> None:
    first = account()
    root = first.make(0, 1, 1, 0)
    below = first.make(first.make(root, 1, 2, 5), 1, 3, 7)
    first.make(root, 1, 4, 11)
    with (tmp_path / "tenant-1").open("r+b") as file:
        file.seek(HEAD_BYTES + (below - 1) * sizeof(RmObject) + RmObject.handle.offset)
        file.write(b"\x63")
    assert account().seen() == {(1, 1): (0, 0), (1, 4): (1, 11)}


@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 24])
def test_file_of_another_layout_is_refused(account: Callable[[], Account], tmp_path: Path, at: int) -> None:
    account().make(0, 1, 1, 0)
    with (tmp_path / "tenant-1").open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(OSError, match=os.strerror(errno.EPROTO)):
        account()


def test_file_that_was_just_being_made_is_made_anew(account: Callable[[], Account], tmp_path: Path) -> None:
    (tmp_path / "tenant-1").write_bytes(bytes(HEAD_BYTES))
    first = account()
    assert not first.store.found
    assert first.make(0, 1, 1, 0) > 0


def test_file_of_another_boot_is_made_anew(
    core: ctypes.CDLL, account: Callable[[], Account], tmp_path: Path
) -> None:
    account().make(0, 1, 1, 0)
    with (tmp_path / "tenant-1").open("r+b") as file:
        head = bytearray(file.read(BOOT_AT + BOOT_BYTES))
        this_boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        assert head[BOOT_AT:] == this_boot.ljust(BOOT_BYTES, b"\0")
        head[BOOT_AT] ^= 1
        head += struct.pack("<I", core.store_check(bytes(head), ctypes.c_size_t(len(head))) & 0xFFFFFFFF)
        file.seek(0)
        file.write(head)
    after = account()
    assert not after.store.found
    assert after.seen() == {}
    assert after.make(0, 1, 1, 0) > 0
    assert account().seen() == {(1, 1): (0, 0)}


def test_full_file_system_refuses_the_next_object(core: ctypes.CDLL, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path], check=True)
    try:
        with folder_fd(tmp_path) as folder:
            first = Account(core, folder)
            root = first.make(0, 1, 1, 0)
            handle = 2
            while first.make(root, 1, handle, 1) > 0:
                handle += 1
            assert 1000 < handle < 3000
            second = Account(core, folder)
            assert second.charged() == handle - 2
            second.drop(second.find(1, 2))
            assert second.make(second.find(1, 1), 1, handle, 1) > 0
            first.close()
            second.close()
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def _work_until_killed(core: ctypes.CDLL, folder: int, seed: int, progress: int) -> None:
    """Makes and drops, telling after each what the account holds: as a line of `client handle` pairs."""
    draw, mine = random.Random(seed), Account(core, folder)
    for number in range(1, 1 << 30):
        live = list(mine.seen())
        if live and draw.random() < 0.4:
            mine.drop(mine.find(*draw.choice(live)))
        else:
            client = draw.randint(1, 3)
            parents = [mine.find(*each) for each in live if each[0] == client]
            mine.make(draw.choice(parents) if parents else 0, client, 100 + number, number)
        os.write(progress, (" ".join(f"{c}:{h}" for c, h in sorted(mine.seen())) + "\n").encode())


def test_kill_at_any_instant_leaves_a_complete_account(core: ctypes.CDLL, tmp_path: Path) -> None:
    draw = random.Random(5)
    for life in range(25):
        path = tmp_path / str(life)
        path.mkdir()
        log = path / "log"
        with folder_fd(path) as folder:
            pid = os.fork()
            if pid == 0:
                _work_until_killed(core, folder, life, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
            while not log.exists() or not log.stat().st_size:
                pass
            signal.sigtimedwait([], draw.uniform(0, 0.02))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            states = [set(line.split()) for line in log.read_text().split("\n")[:-1]]
            heirs = Account(core, folder)
            left = {f"{client}:{handle}" for client, handle in heirs.seen()}
            # The step under way adds one, or ends a subtree children first.
            assert left >= states[-1] or left <= states[-1]
            assert len(left - states[-1]) <= 1
            assert heirs.charged() == sum(size for _parent, size in heirs.seen().values())
            heirs.close()

"""Open files by identity, with none kept open: shared, passed on, under way, ended, never early and never
twice.
"""

import ctypes
import errno
import mmap
import os
import random
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.nvidia_parts import CARD, CTL, UVM, Driver, Process, driver, library, processes

NS_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


@pytest.fixture
def nvidia(tmp_path: Path) -> Iterator[Driver]:
    with driver(tmp_path) as opened:
        yield opened


def test_open_file_has_one_name_in_every_process(nvidia: Driver) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a, b = start(here.fileno()), start(there.fileno())
        fd = a.tell("open", nvidia.nodes[CTL])
        name = nvidia.identify(a, fd)
        assert name > 0
        assert nvidia.identify(a, a.tell("dup", fd)) == name
        a.tell("send", fd)
        assert nvidia.identify(b, b.tell("receive")) == name
        child = a.tell("fork")
        try:
            assert nvidia.call("identify", 0, child, fd) == name
        finally:
            os.kill(child, signal.SIGKILL)
        assert nvidia.call("files_of", 0) == 1


def test_each_open_of_one_node_is_another_file(nvidia: Driver) -> None:
    with processes() as start:
        a, b = start(), start()
        fds = [(p, p.tell("open", nvidia.nodes[CTL])) for p in (a, b) for _ in range(20)]
        names = [nvidia.identify(*fd) for fd in fds]
        assert len(set(names)) == len(fds)
        assert [nvidia.identify(*fd) for fd in fds] == names
        assert nvidia.gone() == set()


def test_file_passed_to_another_tenant_stays_its_makers(nvidia: Driver) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a, b = start(here.fileno()), start(there.fileno())
        fd = a.tell("open", nvidia.nodes[CTL])
        assert nvidia.identify(a, fd, tenant=0) > 0
        a.tell("send", fd)
        assert nvidia.identify(b, b.tell("receive"), tenant=1) == -errno.EPERM


def test_identify_refuses_files_of_no_driver(nvidia: Driver, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with processes() as start:
        a = start()
        assert nvidia.identify(a, a.tell("open", tmp_path / "plain")) == -errno.ENOTTY
        assert nvidia.identify(a, 99) == -errno.EBADF


def test_node_that_was_not_granted(nvidia: Driver, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "card7")
    assert nvidia.lib.harness_node(os.fsencode(tmp_path / "card7"), CARD, 7) == 0
    with processes() as start:
        a = start()
        assert nvidia.identify(a, a.tell("open", tmp_path / "card7")) == -errno.EPERM
        assert nvidia.identify(a, a.tell("open", nvidia.nodes[CARD])) > 0


@pytest.mark.parametrize(
    ("major", "minor", "character", "expected"),
    [
        (195, 255, 1, CTL << 16 | 255),
        (195, 0, 1, CARD << 16 | 0),
        (195, 31, 1, CARD << 16 | 31),
        (195, 254, 1, -errno.EPERM),  # mode setting
        (510, 0, 1, UVM << 16),
        (510, 1, 1, -errno.EPERM),  # the tools' node
        (1, 3, 1, -errno.ENOTTY),
        (195, 255, 0, -errno.ENOTTY),
    ],
)
def test_classes_of_nodes(major: int, minor: int, character: int, expected: int) -> None:
    assert library().harness_classify(major, minor, 510, character) == expected
    assert library().harness_classify(510, 0, 0, 1) == -errno.ENOTTY, "without nvidia-uvm"


def test_descriptor_used_again_is_another_file(nvidia: Driver) -> None:
    with processes() as start:
        a = start()
        fd = a.tell("open", nvidia.nodes[CTL])
        before = nvidia.identify(a, fd)
        a.tell("close", fd)
        assert a.tell("open", nvidia.nodes[CTL]) == fd
        after = nvidia.identify(a, fd)
        assert after not in (before, 0)
        assert nvidia.gone() == {before}
        assert nvidia.fetch(before) == -errno.EBADF
        assert nvidia.fetch(after) == 0


@pytest.mark.skipif(not os.access(NS_LAST_PID, os.W_OK), reason="cannot choose pids")
def test_pid_used_again_is_another_process(nvidia: Driver) -> None:
    with processes() as start:
        for _ in range(50):
            a = start()
            fd = a.tell("open", nvidia.nodes[CTL])
            before = nvidia.identify(a, fd)
            a.kill()
            NS_LAST_PID.write_text(str(a.pid - 1))
            b = start()
            if b.pid == a.pid:
                break
            b.kill()
            nvidia.gone()
        assert b.pid == a.pid, "somebody else was always quicker"
        assert b.tell("open", nvidia.nodes[CTL]) == fd
        after = nvidia.identify(b, fd)
        assert after > 0
        assert after != before
        assert nvidia.gone() == {before}


def test_file_under_way_between_processes_lives(nvidia: Driver) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a, b = start(here.fileno()), start(there.fileno())
        fd = a.tell("open", nvidia.nodes[CTL])
        name = nvidia.identify(a, fd)
        a.tell("send", fd)
        a.kill()
        for _ in range(3):
            assert nvidia.gone() == set(), "it is in the socket, in no process"
            assert nvidia.fetch(name) == -errno.EAGAIN
            nvidia.call("scan")
        arrived = b.tell("receive")
        assert nvidia.fetch(name) == -errno.EAGAIN
        nvidia.call("scan")
        assert nvidia.fetch(name) == 0
        b.tell("close", arrived)
        assert nvidia.gone() == {name}
        assert nvidia.fetch(name) == -errno.EBADF


def test_mapping_alone_keeps_a_file() -> None:
    lib = library()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as ring:
        ring.setsockopt(263, 5, struct.pack("IIII", 4096, 1, 2048, 2))  # PACKET_RX_RING
        weak = ctypes.c_int64(lib.harness_weak(ring.fileno()))
        mapping = mmap.mmap(ring.fileno(), 4096)
    assert lib.harness_weak_lives(weak)
    mapping.close()
    deadline = time.monotonic() + 60
    while lib.harness_weak_lives(weak) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not lib.harness_weak_lives(weak)
    os.close(weak.value >> 32)


def test_child_that_never_called_is_found_when_its_parent_is_gone(nvidia: Driver) -> None:
    with processes() as start:
        a = start()
        fd = a.tell("open", nvidia.nodes[CTL])
        name = nvidia.identify(a, fd)
        child = a.tell("fork")
        a.kill()
        try:
            assert nvidia.gone() == set()
            assert nvidia.fetch(name) == -errno.EAGAIN
            nvidia.call("scan")
            assert nvidia.fetch(name) == 0
        finally:
            os.kill(child, signal.SIGKILL)
        deadline = time.monotonic() + 60
        ended: set[int] = set()
        while not ended and time.monotonic() < deadline:
            ended = nvidia.gone()
        assert ended == {name}


def test_fetching_follows_a_file_to_where_it_was_last_seen(nvidia: Driver) -> None:
    with processes() as start:
        a = start()
        first = a.tell("open", nvidia.nodes[CTL])
        name = nvidia.identify(a, first)
        second = a.tell("dup", first)
        other = a.tell("open", nvidia.nodes[CTL])
        assert nvidia.identify(a, second) == name
        a.tell("dup2", other, second)
        assert nvidia.fetch(name) == 0, "at the first place, since the second is another file by now"
        a.tell("dup2", other, first)
        assert nvidia.fetch(name) == -errno.EBADF


def test_watch_tells_each_end_once_and_none_early(nvidia: Driver) -> None:
    told: list[int] = []

    def watch() -> None:
        while (file := nvidia.call("next_closed")) > 0:
            told.append(file)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with processes() as start:
            a, b = start(), start()
            mine = {nvidia.identify(a, a.tell("open", nvidia.nodes[CTL])) for _ in range(5)}
            its = {nvidia.identify(b, b.tell("open", nvidia.nodes[CTL])) for _ in range(5)}
            time.sleep(0.5)
            assert told == []
            a.kill()
            deadline = time.monotonic() + 60
            while len(told) < 5 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert sorted(told) == sorted(mine)
            assert nvidia.call("files_of", 0) == 5
            assert all(nvidia.fetch(file) == 0 for file in its)
    finally:
        nvidia.call("stop")
        watcher.join()


def test_files_that_cannot_be_polled(nvidia: Driver) -> None:
    with processes() as start:
        a = start()
        one, two = (a.tell("open", nvidia.nodes[UVM]) for _ in range(2))
        name = nvidia.identify(a, one)
        assert name > 0
        assert nvidia.identify(a, a.tell("dup", one)) == name
        assert nvidia.identify(a, two) not in (name, 0)
        assert nvidia.fetch(name) == 0
        assert nvidia.gone() == set()
        for _ in range(131):
            result = nvidia.identify(a, a.tell("open", nvidia.nodes[UVM]))
        assert result == -errno.EMFILE, "one tenant does not take all places"
        a.kill()
        assert nvidia.gone() == set(), "one look is not enough"
        assert len(nvidia.gone()) == 128
        assert nvidia.call("files_of", 0) == 0


@pytest.mark.parametrize("seed", range(4))
def test_random_opens_and_closes_match_a_model(nvidia: Driver, seed: int) -> None:
    """Against a model of who holds what: after every step exactly those are closed that no process holds."""
    chance = random.Random(seed)
    with processes() as start:
        workers = [start() for _ in range(3)]
        held: dict[tuple[Process, int], int] = {}
        names: dict[int, int] = {}
        serial = 0
        for _ in range(150):
            chosen = chance.choice(workers)
            own = [fd for process, fd in held if process is chosen]
            step = chance.choice(["open", "open", "dup", "dup2", "close", "close", "look", "kill"])
            if step == "open":
                serial += 1
                held[chosen, chosen.tell("open", nvidia.nodes[chance.choice((CTL, CARD))])] = serial
            elif step == "dup" and own:
                fd = chance.choice(own)
                held[chosen, chosen.tell("dup", fd)] = held[chosen, fd]
            elif step == "dup2" and own:
                old, new = chance.choice(own), chance.choice(own)
                held[chosen, chosen.tell("dup2", old, new)] = held[chosen, old]
            elif step == "close" and own:
                fd = chance.choice(own)
                chosen.tell("close", fd)
                del held[chosen, fd]
            elif step == "kill" and chance.random() < 0.2:
                chosen.kill()
                workers[workers.index(chosen)] = start()
                held = {at: file for at, file in held.items() if at[0] is not chosen}
            for at, file in chance.sample(sorted(held.items(), key=str), min(3, len(held))):
                name = nvidia.identify(*at)
                assert names.setdefault(file, name) == name
            ended = {name for file, name in names.items() if file not in held.values()}
            assert nvidia.gone() == ended
            names = {file: name for file, name in names.items() if name not in ended}
            assert len(set(names.values())) == len(names)
            assert nvidia.call("files_of", 0) == len(names)


def test_identify_leaks_no_descriptor(nvidia: Driver) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with processes() as start:
        a = start()
        for _ in range(50):
            nvidia.identify(a, a.tell("open", nvidia.nodes[CTL]))
        a.kill()
        assert len(nvidia.gone()) == 50
    assert len(os.listdir("/proc/self/fd")) == before


def test_identify_reports_exhausted_descriptors(nvidia: Driver) -> None:
    with processes() as start:
        a = start()
        fds = [a.tell("open", nvidia.nodes[CTL]) for _ in range(3)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        # Enough for pidfd and duplicate, not for the reference; os.dup() gives the lowest free number.
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, hard))
        try:
            assert nvidia.identify(a, fds[0]) == -errno.EMFILE
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert nvidia.identify(a, fds[0]) > 0

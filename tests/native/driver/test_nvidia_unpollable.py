"""Unpollable files, such as nvidia-uvm's: none counts as closed while it is only unlocated."""

import ctypes
import errno
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.nvidia_parts import UVM, Driver, Process, driver, library, processes
from tests.support.waiting import until

LOOKS, ENDED = 10, 2  # NVIDIA_LOOSE_LOOKS, NVIDIA_ENDED_LOOKS
# NVIDIA_TENANT_UNPOLLABLE_MAX, _SURE, NVIDIA_UNPOLLABLE_TENANTS, _MAX
MOST, SURE, TENANTS, ALL = 128, 16, 128, 4096
BY_NAME, BY_DESCRIPTOR = 0, 1


def put_node(opened: Driver) -> None:
    opened.nodes[UVM] = opened.folder / "uvm"
    opened.nodes[UVM].write_bytes(bytes(4096))
    assert opened.lib.harness_node(os.fsencode(opened.nodes[UVM]), UVM, 0) == 0


@pytest.fixture
def nvidia(tmp_path: Path) -> Iterator[Driver]:
    with driver(tmp_path) as opened:
        put_node(opened)
        yield opened


def looks(nvidia: Driver, count: int) -> set[int]:
    """What is gone after so many looks through all processes."""
    ended: set[int] = set()
    for _ in range(count):
        ended |= nvidia.gone()
    return ended


def called_on(nvidia: Driver, process: Process) -> tuple[int, int]:
    """A file that the process has called on: its descriptor there, and its name."""
    fd = process.tell("open", nvidia.nodes[UVM])
    name = nvidia.identify(process, fd)
    assert name > 0
    return fd, name


def waits_for_a_lock(path: Path) -> bool:
    inode = f":{path.stat().st_ino} "
    return any("-> FLOCK" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.parametrize("where", ["message", "mapping", "call"])
def test_unlocated_file_lives_until_its_tenant_exits(nvidia: Driver, where: str) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start, nvidia.nodes[UVM].open() as other:
        a = start(here.fileno())
        fd, name = called_on(nvidia, a)
        if where == "message":
            a.tell("send", fd)
        elif where == "mapping":
            a.tell("map", fd)
        else:
            fcntl.flock(other, fcntl.LOCK_EX)
            a.tell("begin", fd)
            until(lambda: waits_for_a_lock(nvidia.nodes[UVM]), "a thread is at its call")
        a.tell("close", fd)
        assert looks(nvidia, LOOKS - 1) == set()
        assert nvidia.call("unlocated") == 0, "it may yet come up"
        assert looks(nvidia, 2) == set()
        assert nvidia.call("unlocated") == 1
        if where == "mapping":
            a.tell("unmap")
        a.kill()
        assert looks(nvidia, LOOKS) == set(), "nothing tells of it any more"
        assert nvidia.call("files_of", 0) == 1
        nvidia.call("tenant_exited", 1)
        assert looks(nvidia, 1) == set(), "it is another tenant's"
        nvidia.call("tenant_exited", 0)
        assert looks(nvidia, 1) == {name}
        assert nvidia.call("files_of", 0) == 0


def test_unlocated_file_closes_when_the_kernels_count_shows_all_known(nvidia: Driver) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a, b = start(here.fileno()), start()
        (fd, name), _ = called_on(nvidia, a), called_on(nvidia, b)
        a.tell("send", fd)
        a.tell("close", fd)
        looks(nvidia, LOOKS)
        assert nvidia.call("unlocated") == 1
        # It is open itself; another is being opened at this moment; nothing is said.
        for said in ("4", "3", "6", "0", "", "-"):
            (nvidia.folder / "dev" / "uvm-references").write_text(said)
            assert looks(nvidia, 1) == set()
        (nvidia.folder / "dev" / "uvm-references").write_text("2\n")
        assert looks(nvidia, 1) == {name}


def test_unlocated_file_is_found_when_received(nvidia: Driver) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a, b = start(here.fileno()), start(there.fileno())
        fd, name = called_on(nvidia, a)
        for _ in range(2):
            a.tell("send", fd)
            a.tell("close", fd)
            assert looks(nvidia, LOOKS - 1) == set()
            arrived = b.tell("receive")
            assert looks(nvidia, LOOKS) == set(), "it is there"
            assert nvidia.identify(b, arrived) == name
            b.tell("send", arrived)
            b.tell("close", arrived)
            fd = a.tell("receive")
        assert nvidia.identify(a, fd) == name
        a.tell("close", fd)
        assert looks(nvidia, LOOKS - 1) == set()
        assert looks(nvidia, 1) == {name}
        assert nvidia.call("unlocated") == 0


@pytest.mark.parametrize("seen_by", ["call", "scan", "tick"])
def test_journal_has_the_last_place_of_a_file(nvidia: Driver, seen_by: str) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a, b = start(here.fileno()), start(there.fileno())
        fd, name = called_on(nvidia, a)
        assert nvidia.call("seen", name) == a.pid
        a.tell("send", fd)
        a.tell("close", fd)
        nvidia.call("tick")
        assert nvidia.call("seen", name) == 0, "what stands there by now may be another file"
        b.tell("send", b.tell("receive"))
        assert a.tell("receive") == fd
        if seen_by == "call":
            assert nvidia.identify(a, fd) == name
        else:
            nvidia.call(seen_by)
        assert nvidia.call("seen", name) in (a.pid, b.pid)


def test_process_scans_are_limited_per_tenant(nvidia: Driver) -> None:
    with processes() as start:
        a = start()
        fd, name = called_on(nvidia, a)
        a.tell("close", fd)
        for _ in range(3 * LOOKS):
            nvidia.call("tick")
        assert nvidia.call("files_of", 0) == 1, "it has been looked for once"
        assert looks(nvidia, LOOKS - 2) == set()
        assert looks(nvidia, 1) == {name}


def test_sender_that_ends_leaves_what_is_under_way(nvidia: Driver) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a, b = start(here.fileno()), start(there.fileno())
        fd, name = called_on(nvidia, a)
        a.tell("send", fd)
        a.kill()
        assert looks(nvidia, ENDED) == set()
        assert nvidia.call("unlocated") == 1
        # It is charged, and the one that arrives is nothing that is known.
        assert nvidia.identify(b, b.tell("receive")) not in (name, 0)
        b.kill()
        assert name not in looks(nvidia, LOOKS)
        nvidia.call("tenant_exited", 0)
        assert looks(nvidia, 1) == {name}


def test_moving_file_is_never_taken_for_closed(nvidia: Driver) -> None:
    with processes() as start, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ring:
        ring.bind(b"\0mgpu-test-%d" % os.getpid())
        ring.connect(ring.getsockname())  # to itself
        a = start(ring.fileno())
        fd, name = called_on(nvidia, a)
        a.tell("hammer", fd)
        assert name not in looks(nvidia, 20 * LOOKS)
        a.kill()
        assert nvidia.call("files_of", 0) == 1


def test_files_of_an_exited_process_close_at_the_second_poll(nvidia: Driver) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a, supervisor = start(here.fileno()), start(there.fileno())
        names = {called_on(nvidia, a)[1] for _ in range(6)}
        stays = called_on(nvidia, supervisor)[1]
        a.kill()
        assert looks(nvidia, ENDED - 1) == set()
        assert looks(nvidia, 1) == names
        assert (nvidia.call("unlocated"), nvidia.call("files_of", 0)) == (0, 1)
        supervisor.kill()
        assert looks(nvidia, ENDED) == {stays}


def test_child_keeps_inherited_files_open(nvidia: Driver) -> None:
    with processes() as start:
        a = start()
        _fd, name = called_on(nvidia, a)
        child = a.tell("fork")
        a.kill()
        try:
            assert looks(nvidia, 2 * LOOKS) == set()
        finally:
            os.kill(child, 9)
        until(lambda: looks(nvidia, 1) == {name}, "its last holder has ended")


def test_younger_of_two_goes_first(nvidia: Driver) -> None:
    """It may be one that holds the other."""
    with processes() as start:
        a, b = start(), start()
        older, other = called_on(nvidia, a)[1], called_on(nvidia, b)[1]
        younger = called_on(nvidia, a)[1]
        duplicate = nvidia.call("use", younger)
        a.kill()
        assert [nvidia.call("let_go") for _ in range(ENDED)] == [0, 0], (
            "one is in use, the other waits for it"
        )
        os.close(duplicate)
        nvidia.call("put", younger)
        assert [nvidia.call("let_go") for _ in range(3)] == [younger, older, 0]
        b.kill()
        assert [nvidia.call("let_go") for _ in range(ENDED)] == [0, other]


def test_fetch_returns_ebusy_during_close(nvidia: Driver) -> None:
    with processes() as start:
        a = start()
        _fd, name = called_on(nvidia, a)
        a.kill()
        assert [nvidia.call("let_go") for _ in range(ENDED)] == [0, name]
        assert (nvidia.call("use", name), nvidia.call("ending", name)) == (-errno.EBUSY, 1)
        nvidia.call("is_unlocated", name)
        assert (nvidia.call("use", name), nvidia.call("ending", name)) == (-errno.EAGAIN, 0)


def test_last_close_waits_for_copies_of_the_file_table(tmp_path: Path) -> None:
    meanwhile: list[set[int]] = []
    begun = threading.Event()

    def answer(_fd: int, _cmd: int, _arg: int) -> int:
        if begun.is_set():
            meanwhile.append(looks(opened, LOOKS))
        return 0

    with driver(tmp_path, answer) as opened, processes() as start:
        put_node(opened)
        a = start()
        _fd, name = called_on(opened, a)
        a.kill()
        begun.set()
        assert opened.call("unshared") == 0
        assert meanwhile == [set()], "it waits until the copy has ended"
        assert looks(opened, ENDED) == {name}
        assert opened.call("unlocated") == 0


def test_unlocated_files_count_against_their_tenant(nvidia: Driver) -> None:
    here, there = socket.socketpair()
    with here, there, processes() as start:
        a = start(here.fileno())
        for _ in range(MOST):
            fd, _name = called_on(nvidia, a)
            a.tell("send", fd)
            a.tell("close", fd)
        assert looks(nvidia, LOOKS + 1) == set()
        assert nvidia.call("unlocated") == MOST
        fd = a.tell("open", nvidia.nodes[UVM])
        assert nvidia.identify(a, fd) == -errno.EMFILE
        assert nvidia.identify(a, fd, tenant=1) > 0


@pytest.mark.parametrize("greedy", [1, 16, 64, TENANTS])
def test_greedy_tenants_leave_others_their_first_files(greedy: int) -> None:
    may_have_another = library().nvidia_may_have_another
    may_have_another.restype = ctypes.c_bool
    has = [0] * TENANTS
    for number in range(greedy):
        while may_have_another(has[number], sum(has)):
            has[number] += 1
    assert max(has) <= MOST
    for number in range(greedy, TENANTS):
        for _ in range(SURE):
            assert may_have_another(has[number], sum(has))
            has[number] += 1
    assert sum(has) <= ALL


@pytest.mark.parametrize(
    ("path", "by"),
    [
        ("uvm", BY_NAME),
        ("/dev/null", BY_NAME),
        ("/dev/shm/mgpu-test", BY_NAME),
        # Of device nodes newer kernels make none.
        ("uvm", BY_DESCRIPTOR),
        ("/dev/shm/mgpu-test", BY_DESCRIPTOR),
    ],
)
def test_kernel_says_which_close_is_the_last(nvidia: Driver, tmp_path: Path, path: str, by: int) -> None:
    in_memory = path.startswith("/dev/shm")
    node = tmp_path / (f"{path}-{os.getpid()}" if in_memory else path)
    flags = os.O_RDWR | os.O_CREAT
    try:
        for _ in range(3):
            one = os.open(node, flags)
            two = os.dup(one)
            assert nvidia.call("last_close", one, by) == 0
            assert nvidia.call("last_close", two, by) == 1
    finally:
        if in_memory:
            node.unlink()


def test_foreign_close_is_not_taken_for_mgpuds(nvidia: Driver) -> None:
    kept = os.open(nvidia.nodes[UVM], os.O_RDWR)
    with processes() as start:
        for _ in range(2):
            start().tell("churn", nvidia.nodes[UVM])
        for _ in range(5000):
            assert nvidia.call("last_close", os.dup(kept), BY_NAME) == 0
        assert nvidia.call("last_close", kept, BY_NAME) == 1


def test_blind_close_is_no_last_close() -> None:
    lib = library()
    assert lib.harness_blind_close(os.open("/dev/null", os.O_RDWR)) == 0

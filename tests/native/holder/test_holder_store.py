"""The holder is killed, and the next one gets what it held from the service manager's descriptor store."""

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mgpu_cli.fd_store import FdStore
from oci_specs import paths
from tests.support.holder import Holder, message, mgpud_argv, receive, send, stand_in
from tests.support.waiting import until

SOCKET = "seccomp.sock"


class Manager:
    """Starts holders one after the other, and keeps what they store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FdStore(folder / "notify.sock", 3000)
        self.words: list[str | Path] = [
            "--seccomp-socket",
            folder / SOCKET,
            "--mgpud-socket",
            folder / "holder.sock",
        ]
        self.process: subprocess.Popen[str] | None = None

    def start(self, *more: str | Path) -> Holder:
        argv = [os.fspath(word) for word in (paths.libexec("mgpu-holder"), *self.words, *more)]
        with (self.folder / "holder.log").open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=lambda: self.store.become(argv),
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return Holder(self.folder, self.process)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.store.read(self.process.pid)

    def names(self) -> list[str]:
        """Of what is stored, but for seccomp.sock."""
        assert self.process is not None
        self.store.read(self.process.pid)
        return sorted(name for name, _ in self.store.kept if name != SOCKET)

    def until_stored(self, count: int) -> None:
        until(lambda: len(self.names()) == 2 * count, f"{count} listeners are stored, with their messages")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()
    made.store.close()


def served(holder: Holder, count: int) -> dict[str, tuple[int, int]]:
    """The listeners that a mgpud is sent as it begins: number and file of each."""
    mgpud = holder.mgpud()
    found = {one.container_id: (one.holder_id, one.file) for one in receive(mgpud, count)}
    mgpud.close()
    return found


def test_next_holder_has_the_listeners_of_a_killed_one(manager: Manager) -> None:
    holder = manager.start()
    files = holder.arrives("a", "b")
    before = served(holder, 2)
    assert [before[name][1] for name in "ab"] == files
    manager.until_stored(2)
    for _ in range(2):
        manager.kill()
        holder = manager.start()
        assert served(holder, 2) == before
    # Theirs are not used again.
    holder.arrives("c")
    assert served(holder, 3)["c"][0] > max(number for number, _ in before.values())


def test_listener_of_a_container_that_ended_meanwhile_is_closed(manager: Manager) -> None:
    holder = manager.start()
    read, write = os.pipe()
    with holder.runtime() as runtime:
        send(runtime, message("ended"), [read])
    holder.arrives("lives")
    manager.until_stored(2)
    manager.kill()
    os.close(write)
    holder = manager.start()
    assert list(served(holder, 1)) == ["lives"]
    manager.until_stored(1)


def test_dropped_listener_leaves_the_store(manager: Manager) -> None:
    holder = manager.start()
    holder.arrives("a", "b")
    manager.until_stored(2)
    mgpud = holder.mgpud()
    first, second = receive(mgpud, 2)
    mgpud.drop(first.holder_id)
    manager.until_stored(1)
    assert manager.names() == [f"listener-{second.holder_id}"] * 2
    mgpud.close()


def sealed(text: bytes) -> int:
    fd = os.memfd_create("text", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, text)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    return fd


FOREIGN: dict[str, Callable[[], list[tuple[str, int]]]] = {
    "no-message": lambda: [("listener-7", stand_in()[0])],
    "no-listener": lambda: [("listener-7", sealed(message()))],
    "another-number": lambda: [("listener-7", stand_in()[0]), ("listener-8", sealed(message()))],
    "no-number": lambda: [("listener-x", stand_in()[0]), ("listener-x", sealed(message()))],
    "not-a-whole-number": lambda: [("listener-7x", stand_in()[0]), ("listener-7x", sealed(message()))],
    "a-number-too-many": lambda: [("listener-07", stand_in()[0]), ("listener-07", sealed(message()))],
    "not-of-a-listener": lambda: [("connection", stand_in()[0])],
    "message-too-long": lambda: [("listener-7", stand_in()[0]), ("listener-7", sealed(b"x" * 65537))],
    "another-socket": lambda: [(SOCKET, socket.socket(socket.AF_UNIX).detach())],
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
def test_descriptors_of_no_listener_are_closed_and_leave_the_store(
    manager: Manager, foreign: Callable[[], list[tuple[str, int]]]
) -> None:
    holder = manager.start()
    files = holder.open_files()
    manager.kill()
    manager.store.kept += foreign()
    holder = manager.start()
    assert holder.status().listeners == 0
    assert manager.names() == []
    until(lambda: holder.open_files() == files, "they are closed")
    holder.arrives("after")
    assert list(served(holder, 1)) == ["after"]


def test_second_listener_of_a_number_is_not_mixed_up(manager: Manager) -> None:
    manager.store.kept += [("listener-7", stand_in()[0]), ("listener-7", sealed(message("a")))]
    manager.store.kept += [("listener-7", stand_in()[0])]
    assert list(served(manager.start(), 1)) == ["a"]


def test_descriptors_for_another_process_are_left_alone(tmp_path: Path) -> None:
    argv: list[str | Path] = [paths.libexec("mgpu-holder")]
    argv += ["--seccomp-socket", tmp_path / SOCKET, "--mgpud-socket", tmp_path / "holder.sock"]
    environment = os.environ | {"LISTEN_PID": "1", "LISTEN_FDS": "5", "LISTEN_FDNAMES": "a:b"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(10) == 0


def test_runtime_that_sends_while_there_is_no_holder_is_heard_by_the_next(manager: Manager) -> None:
    holder = manager.start()
    manager.kill()
    files = holder.arrives("a", "b")
    found = served(manager.start(), 2)
    assert [found[name][1] for name in "ab"] == files


def test_socket_whose_path_is_gone_is_made_anew(manager: Manager) -> None:
    manager.start()
    manager.kill()
    (manager.folder / SOCKET).unlink()
    holder = manager.start()
    holder.arrives("a")
    manager.until_stored(1)
    assert [name for name, _ in manager.store.kept].count(SOCKET) == 1


def test_holder_that_ends_well_leaves_no_socket(manager: Manager) -> None:
    holder = manager.start()
    holder.arrives("a")
    manager.until_stored(1)
    holder.process.terminate()
    assert holder.process.wait(10) == 0
    manager.until_stored(1)
    assert [name for name, _ in manager.store.kept if name == SOCKET] == []
    assert list(served(manager.start(), 1)) == ["a"]


def test_manager_that_reads_late_misses_nothing(manager: Manager) -> None:
    """More than its socket takes in meanwhile."""
    holder = manager.start()
    containers = [f"c{number}" for number in range(600)]
    holder.arrives(*containers)
    mgpud = holder.mgpud()
    listeners = receive(mgpud, 600)

    def holds(number: int) -> bool:
        return holder.status().listeners == number

    for left, one in zip(range(599, 299, -1), listeners, strict=False):
        mgpud.drop(one.holder_id)
        until(partial(holds, left), "it is dropped", poll_s=0.001)
    mgpud.close()
    manager.until_stored(300)
    manager.kill()
    assert set(served(manager.start(), 300)) == set(containers[300:])


def test_manager_that_is_gone_stops_no_listener(manager: Manager) -> None:
    (manager.folder / "notify.sock").unlink()
    holder = manager.start()
    holder.arrives("a", "b")
    assert set(served(holder, 2)) == {"a", "b"}
    assert holder.log().count("the service manager stores no descriptors: No such file or directory") == 1
    manager.store.close()
    manager.store = FdStore(manager.folder / "notify.sock", 10)
    until(lambda: len(manager.names()) == 4, "it is told when it is back", timeout_s=10)


def test_replaced_holder_stores_nothing_twice(manager: Manager) -> None:
    holder = manager.start()
    holder.arrives("a")
    manager.until_stored(1)
    os.kill(holder.process.pid, signal.SIGHUP)
    until(lambda: holder.status().replaced == 1, "it is replaced")
    holder.arrives("b")
    manager.until_stored(2)
    time.sleep(0.2)
    manager.until_stored(2)
    manager.kill()
    assert set(served(manager.start(), 2)) == {"a", "b"}


def test_mgpud_that_goes_on_gets_what_it_has_no_second_time(manager: Manager) -> None:
    holder = manager.start()
    holder.arrives("a", "b")
    with holder.mgpud_process() as mgpud:
        assert len(mgpud.start()) == 2
        manager.until_stored(2)
        manager.kill()
        assert mgpud.said().keys() >= {"gone"}
        holder = manager.start()
        assert holder.status().listeners == 2


def test_mgpud_is_not_told_of_the_service_manager(manager: Manager) -> None:
    shows = manager.folder / "shows"
    shows.write_text(f'#!/bin/sh\nenv >{manager.folder}/env\nexec "$@"\n')
    shows.chmod(0o700)
    manager.start("--mgpud-log", manager.folder / "log", "--", shows, *mgpud_argv(manager.folder, "--beat"))
    assert not [
        line
        for line in (manager.folder / "env").read_text().splitlines()
        if "NOTIFY" in line or "LISTEN" in line
    ]


def test_store_takes_nothing_from_other_processes(tmp_path: Path) -> None:
    store = FdStore(tmp_path / "notify.sock", 10)
    fd, _ = stand_in()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.connect(os.fspath(tmp_path / "notify.sock"))
        for _ in range(2):
            socket.send_fds(link, [b"FDSTORE=1\nFDNAME=a"], [fd])
        store.read(os.getpid() + 1)
        assert store.kept == []
        socket.send_fds(link, [b"FDSTORE=1\nFDNAME=a"], [fd])
        store.read(os.getpid())
        assert [name for name, _ in store.kept] == ["a"]
        link.send(b"FDSTOREREMOVE=1\nFDNAME=a")
        store.read(os.getpid() + 1)
        assert [name for name, _ in store.kept] == ["a"]
    os.close(fd)
    store.close()


def test_store_has_a_bound(tmp_path: Path) -> None:
    store = FdStore(tmp_path / "notify.sock", 3)
    fd, _ = stand_in()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.connect(os.fspath(tmp_path / "notify.sock"))
        for _ in range(5):
            socket.send_fds(link, [b"FDSTORE=1\nFDNAME=a"], [fd, fd])
        files = len(os.listdir("/proc/self/fd"))
        store.read(os.getpid())
        assert len(store.kept) == 2
        assert len(os.listdir("/proc/self/fd")) == files + 2
    os.close(fd)
    store.close()

"""The holder replaces itself by the program at its own path, and whatever it was in the middle of goes on."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from native_sched.daemon.links.holder import Listener
from oci_specs import paths
from tests.support.holder import HEAD, HELLO, Holder, holding, message, mgpud_argv, receive, send, stand_in
from tests.support.waiting import until

# The standard streams, epoll, signalfd, two sockets, and their lock.
OWN_FILES = 8


@dataclass(frozen=True)
class Installed:
    """A path at which one program after the other is installed."""

    path: Path

    def install(self, version: str) -> Path:
        """Another copy of the holder; the one before is gone, as after an upgrade."""
        copy = self.path.with_name(version)
        shutil.copy2(paths.libexec("mgpu-holder"), copy)
        self._point(copy)
        return copy

    def install_script(self, text: str) -> None:
        script = self.path.with_name("script")
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o700)
        self._point(script)

    def _point(self, at: Path) -> None:
        new = self.path.with_name("new")
        new.symlink_to(at)
        before = self.path.resolve() if self.path.is_symlink() else None
        new.rename(self.path)
        if before is not None:
            before.unlink()


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    (tmp_path / "bin").mkdir()
    found = Installed(tmp_path / "bin" / "mgpu-holder")
    found.install("old")
    return found


@pytest.fixture
def holder(tmp_path: Path, installed: Installed) -> Iterator[Holder]:
    with holding(tmp_path, program=installed.path) as running:
        yield running


def replaced(holder: Holder, times: int = 1) -> None:
    holder.process.send_signal(signal.SIGHUP)
    until(lambda: holder.status().replaced == times, "it is replaced")


def left_open(holder: Holder) -> list[str]:
    """What programs that it starts would have, beside the standard streams."""
    found = []
    for number in os.listdir(f"/proc/{holder.process.pid}/fdinfo"):
        with suppress(FileNotFoundError):
            words = Path(f"/proc/{holder.process.pid}/fdinfo/{number}").read_text().split()
            if int(number) > 2 and not int(words[words.index("flags:") + 1], 8) & os.O_CLOEXEC:
                found.append(os.readlink(f"/proc/{holder.process.pid}/fd/{number}"))
    return found


def running(holder: Holder) -> str:
    return os.readlink(f"/proc/{holder.process.pid}/exe")


def test_replaced_holder_keeps_all_listeners(holder: Holder, installed: Installed) -> None:
    files = holder.arrives("a", "b")
    until(lambda: holder.status().listeners == 2, "they have come")
    until(lambda: holder.open_files() == OWN_FILES + len(files), "nothing else is open")
    new = installed.install("new-1")
    replaced(holder)
    assert running(holder) == str(new)
    assert holder.status().listeners == 2
    until(lambda: holder.open_files() == OWN_FILES + len(files), "nothing else is open")
    mgpud = holder.mgpud()
    found = receive(mgpud, 2)
    assert [(one.container_id, one.file) for one in found] == [("a", files[0]), ("b", files[1])]
    mgpud.close()


def test_mgpud_goes_on_and_ids_are_not_used_again(holder: Holder, installed: Installed) -> None:
    holder.arrives("a")
    with holder.mgpud_process() as mgpud:
        [first] = mgpud.start()
        for times in range(1, 4):
            installed.install(f"new-{times}")
            replaced(holder, times)
            holder.arrives(f"after-{times}")
            said = mgpud.said()
            assert (said["container"], said["listener"]) == (f"after-{times}", first + times)
        mgpud.tell("drop", first)
        until(lambda: holder.status().listeners == 3, "what the mgpud says is heard")
        assert holder.status().mgpud_pid == mgpud.pid
        mgpud.process.kill()
        until(lambda: holder.status().mgpud_pid == 0, "its end is seen")


def test_next_program_inherits_no_descriptor(holder: Holder) -> None:
    with holder.mgpud_process() as mgpud:
        mgpud.start()
        replaced(holder)
        assert left_open(holder) == []


def test_messages_in_the_making_are_completed(holder: Holder, installed: Installed) -> None:
    mgpud = holder.mgpud()
    text = message('with "quotes" and {braces}')
    begun = []
    for at in (1, 20, text.index(b"quotes") - 1, len(text) - 1):
        runtime = holder.runtime()
        send(runtime, text[:at], [stand_in()[0]])
        begun.append((runtime, text[at:]))
    installed.install("new-1")
    replaced(holder)
    for runtime, rest in begun:
        runtime.sendall(rest)
        runtime.close()
    assert len(receive(mgpud, 4)) == 4
    mgpud.close()


def test_mgpud_that_has_not_read_misses_no_listener(holder: Holder) -> None:
    """More than a socket takes in: what is left is sent by the new program."""
    fd, _ = stand_in()
    for number in range(600):
        with holder.runtime() as runtime:
            send(runtime, message(f"c{number}"), [os.dup(fd)])
    os.close(fd)
    until(lambda: holder.status().listeners == 600, "all have come")
    mgpud = holder.mgpud()
    replaced(holder)
    ids: list[int] = []

    def taken(listener: Listener) -> None:
        ids.append(listener.holder_id)
        os.close(listener.fd)

    mgpud.read_all(taken)
    assert len(set(ids)) == len(ids) == 600
    mgpud.close()


def test_replacement_loses_no_listener(holder: Holder, installed: Installed) -> None:
    """Old and new by turns, twenty times, and every listener arrives."""
    mgpud = holder.mgpud()
    count = 200
    got: list[Listener] = []
    sender = threading.Thread(target=lambda: holder.arrives(*(f"c{number}" for number in range(count))))
    sender.start()
    for times in range(1, 21):
        installed.install(f"new-{times}")
        replaced(holder, times)
        mgpud.read(got.append)
    sender.join()
    until(lambda: mgpud.read(got.append) and len(got) >= count, "all arrive")
    assert {one.container_id for one in got} == {f"c{number}" for number in range(count)}
    for one in got:
        os.close(one.fd)
    mgpud.close()


def test_hello_that_has_not_been_said_yet_is_waited_for(holder: Holder) -> None:
    with holder.stranger() as first:
        first.send(HEAD.pack(HELLO, 1, 0))
        first.recv(100)
        # Of one process, the later connection is the same mgpud's.
        with holder.stranger() as second:
            replaced(holder)
            second.send(HEAD.pack(HELLO, 1, 0))
            assert len(second.recv(100)) == HEAD.size


@pytest.mark.parametrize(
    "script",
    ["exit 1", "exit 2", "kill -SEGV $$", "exec sleep 1000"],
    ids=["another-format", "no-such-option", "it-dies", "it-hangs"],
)
def test_program_that_cannot_go_on_does_not_begin(holder: Holder, installed: Installed, script: str) -> None:
    holder.arrives("a")
    installed.install_script(script)
    holder.process.send_signal(signal.SIGHUP)
    until(lambda: "does not know how to go on from here" in holder.log(), "it says so")
    assert (holder.status().replaced, holder.status().listeners) == (0, 1)


def test_missing_program_leaves_the_holder_as_it_is(holder: Holder, installed: Installed) -> None:
    holder.arrives("a")
    installed.install_script(f"rm {installed.path}; exit 0")
    holder.process.send_signal(signal.SIGHUP)
    until(lambda: "No such file or directory" in holder.log(), "it says so")
    mgpud = holder.mgpud()
    assert receive(mgpud, 1)[0].container_id == "a"
    mgpud.close()
    # No descriptor is left for the programs that it starts.
    assert left_open(holder) == []


def test_mgpud_stays_a_child_of_the_replaced_holder(tmp_path: Path, installed: Installed) -> None:
    with holding(tmp_path, program=installed.path, mgpud=mgpud_argv(tmp_path, "--beat")) as holder:
        until(lambda: holder.status().mgpud_pid != 0, "a mgpud serves")
        first = holder.status().mgpud_pid
        holder.arrives("a")
        installed.install("new-1")
        replaced(holder)
        assert holder.status().mgpud_pid == first
        os.kill(first, signal.SIGKILL)
        until(lambda: holder.status().mgpud_pid not in (0, first), "it is started again")
        until(lambda: '"container": "a"' in (tmp_path / "mgpud.log").read_text(), "it has the listener")

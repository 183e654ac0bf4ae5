"""Two mgpuds never both serve, and the one that serves has every listener."""

import os
import signal
import socket
import struct
from pathlib import Path

import pytest

from native_sched.daemon.links import holder as holder_link
from native_sched.daemon.node import mgpud_lock
from oci_specs.refusal import Refusal
from tests.support.holder import (
    ALL,
    HEAD,
    HELLO,
    LISTENER,
    REFUSED,
    SERVING,
    WELCOME,
    Holder,
    Mgpud,
    Status,
    message,
    send,
    stand_in,
)
from tests.support.waiting import until

MANY = 1024  # HELD_MAX in native_sched/holder/table.h


def ended(mgpud: Mgpud) -> str:
    """What a mgpud that is to end wrote on stderr."""
    return mgpud.process.communicate(timeout=30)[1]


def test_second_mgpud_is_refused_in_one_line(holder: Holder) -> None:
    with holder.mgpud_process() as first:
        first.start()
        with holder.mgpud_process() as second:
            assert ended(second) == (
                f"mgpu: another mgpud (pid {first.pid}) serves this node; "
                "stop that one, or start this one with --take-over\n"
            )
            assert second.process.returncode == 1
        holder.arrives("after")
        assert first.said()["container"] == "after"


def test_taking_over_ends_the_old_one_first_and_brings_every_listener(holder: Holder) -> None:
    holder.arrives("a", "b")
    with holder.mgpud_process() as first:
        ids = first.start()
        with holder.mgpud_process("--take-over") as second:
            assert second.start() == ids
            assert first.process.wait(10) == -signal.SIGKILL
            holder.arrives("c")
            assert second.said()["container"] == "c"


def test_mgpud_that_hangs_is_ended_by_the_one_that_takes_over(holder: Holder) -> None:
    holder.arrives("a")
    with holder.mgpud_process() as first:
        ids = first.start()
        first.process.send_signal(signal.SIGSTOP)
        with holder.mgpud_process("--take-over") as second:
            assert second.start() == ids
            assert first.process.wait(10) == -signal.SIGKILL


def test_disconnected_mgpud_is_ended_before_the_next(holder: Holder) -> None:
    with holder.mgpud_process() as first:
        first.start()
        first.tell("close")
        until(lambda: "no longer connected" in holder.log(), "the connection is closed")
        with holder.mgpud_process() as second:
            assert second.start() == {}
            assert first.process.wait(10) == -signal.SIGKILL


def test_next_mgpud_has_the_same_listeners_and_ids(holder: Holder) -> None:
    files = holder.arrives("a", "b", "c")
    with holder.mgpud_process() as first:
        known = first.start()
        assert len(known) == len(files)
        first.tell("drop", min(known))
        assert first.said()["dropped"] == min(known)
        holder.arrives("d")
        fourth = first.said()
        first.process.kill()
    with holder.mgpud_process() as second:
        expected = {number: name for number, name in known.items() if number != min(known)}
        assert second.start() == expected | {fourth["listener"]: "d"}


def test_strangers_do_not_end_the_mgpud(holder: Holder) -> None:
    with holder.mgpud_process() as mgpud:
        mgpud.start()
        said = (None, b"", b"x", HEAD.pack(99, 0, 0), HEAD.pack(1, 0, 5), HEAD.pack(2, 0, 1), bytes(70000))
        for data in said:
            with holder.stranger() as stranger:
                if data is not None:
                    stranger.send(data)
                    assert data == b"" or stranger.recv(100) == b""
        holder.arrives("a")
        assert mgpud.said()["container"] == "a"


def test_surplus_unknown_peers_are_disconnected(holder: Holder) -> None:
    strangers = [holder.stranger() for _ in range(40)]
    for stranger in strangers[16:]:
        assert stranger.recv(1) == b""
    for stranger in strangers:
        stranger.close()
    with holder.mgpud_process() as mgpud:
        assert mgpud.start() == {}


def test_garbage_from_a_mgpud_ends_its_connection_only(holder: Holder) -> None:
    with holder.stranger() as mgpud:
        mgpud.send(HEAD.pack(HELLO, 1, 0))
        assert HEAD.unpack(mgpud.recv(100)) == (WELCOME, 1, 0)
        mgpud.recv(100)
        mgpud.send(struct.pack("=II", 9, 9))
        assert mgpud.recv(100) == b""
    assert holder.process.poll() is None


def test_serving_mgpud_goes_before_a_starting_one(holder: Holder) -> None:
    """It comes from the holder before, and has the lock, which the other one waits for."""
    with holder.mgpud_process() as begun, holder.stranger() as serving:
        begun.start()
        serving.send(HEAD.pack(HELLO, 1, SERVING))
        assert HEAD.unpack(serving.recv(100))[0] == WELCOME
        assert begun.process.wait(10) == -signal.SIGKILL


def test_two_that_serve_are_one_too_many(holder: Holder) -> None:
    with holder.mgpud_process("--beat") as first, holder.stranger() as second:
        first.start()
        until(lambda: holder.status().starting == 0, "it serves")
        second.send(HEAD.pack(HELLO, 1, SERVING))
        assert HEAD.unpack(second.recv(100)) == (REFUSED, 1, first.pid)


def test_takeover_waits_while_mgpud_gives_back(holder: Holder) -> None:
    """It alone has them: with it they would end."""
    with holder.stranger() as gives:
        gives.send(HEAD.pack(HELLO, 1, SERVING))
        assert HEAD.unpack(gives.recv(100))[0] == WELCOME
        with holder.mgpud_process("--take-over") as other:
            assert "is taking over this node at this moment" in ended(other)
        fd, _ = stand_in()
        socket.send_fds(gives, [HEAD.pack(LISTENER, 0, 7), message("back")], [fd])
        os.close(fd)
        gives.send(HEAD.pack(ALL, 0, 1))
        assert HEAD.unpack(gives.recv(100)) == (ALL, 0, 0)
        assert holder.status().listeners == 1


def test_mgpud_without_a_holder_says_so(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=f"mgpu-holder is not running: no answer on {tmp_path}/holder.sock"):
        holder_link.HolderLink(str(tmp_path / "holder.sock"))


@pytest.mark.parametrize("protocol", [0, 2, 1 << 31])
def test_other_protocol_is_refused_with_ours(holder: Holder, protocol: int) -> None:
    with holder.stranger() as mgpud:
        mgpud.send(HEAD.pack(HELLO, protocol, 1))
        assert HEAD.unpack(mgpud.recv(100)) == (REFUSED, 3, 1)


def test_newer_mgpud_says_what_to_do(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder_link, "PROTOCOL", 2)
    with pytest.raises(Refusal, match="the holder speaks protocol 1, this mgpud 2"):
        holder.mgpud()


def test_status(holder: Holder) -> None:
    holder.arrives("a")
    with holder.mgpud_process() as mgpud:
        mgpud.start()
        assert holder.status() == Status(0, mgpud.pid, 0, 1, 0, 1, 0)


def test_full_table_is_handed_over_to_one_that_reads_late(holder: Holder) -> None:
    """Neither does the holder wait for it, nor does it leave one out; one more than it holds is refused."""
    fd, _ = stand_in()
    for number in range(MANY + 1):
        with holder.runtime() as runtime:
            send(runtime, message(f"c{number}"), [os.dup(fd)])
    os.close(fd)
    until(lambda: "listener refused: 1024 are held already" in holder.log(), "the last one is refused")
    with holder.stranger() as late:
        late.send(HEAD.pack(HELLO, 1, 0))
        # It is served while the mgpud does not read.
        assert holder.status() == Status(0, os.getpid(), 0, MANY, 0, 1, 0)
    mgpud = holder.mgpud()
    ids: list[int] = []

    def taken(listener: holder_link.Listener) -> None:
        ids.append(listener.holder_id)
        os.close(listener.fd)

    mgpud.read_all(taken)
    assert len(set(ids)) == len(ids) == MANY
    mgpud.close()


def test_lock_is_held_by_one_and_free_with_its_process(tmp_path: Path, holder: Holder) -> None:
    path = str(tmp_path / "mgpud.lock")
    with holder.mgpud_process() as mgpud:
        mgpud.start()
        with (
            pytest.raises(Refusal, match=rf"another mgpud \(pid {mgpud.pid}\) holds {path}"),
            mgpud_lock.held(path, timeout_s=0.1),
        ):
            pytest.fail("two have the lock")
        mgpud.process.kill()
        with mgpud_lock.held(path):
            pass


def test_fencing_ends_whoever_has_the_lock(tmp_path: Path, holder: Holder) -> None:
    with holder.mgpud_process() as mgpud:
        mgpud.start()
        mgpud.process.send_signal(signal.SIGSTOP)
        with mgpud_lock.held(str(tmp_path / "mgpud.lock"), fence=True):
            assert mgpud.process.wait(10) == -signal.SIGKILL


def test_fencing_does_not_end_a_process_that_only_has_the_pid(tmp_path: Path) -> None:
    path = tmp_path / "mgpud.lock"
    path.write_text(f"{os.getpid()} 1\n")
    descriptor = os.open(path, os.O_RDWR)
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(Refusal), mgpud_lock.held(str(path), fence=True, timeout_s=0.1):
            pytest.fail("two have the lock")
    finally:
        os.close(descriptor)


def test_children_do_not_inherit_the_lock(tmp_path: Path) -> None:
    with mgpud_lock.held(str(tmp_path / "mgpud.lock")):
        here = [fd for fd in os.listdir("/proc/self/fd") if "mgpud.lock" in _target(fd)]
        assert here
        assert not any(os.get_inheritable(int(fd)) for fd in here)


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return ""

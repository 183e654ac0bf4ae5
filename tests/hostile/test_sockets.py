"""Peers that speak to mgpud and to the holder without being root of the node, or with a grant that is not
theirs.
"""

import errno
import functools
import json
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hostile.siege import Siege
from tests.support.waiting import until

NOBODY = 65534
REFUSED = "event=listener-without-grant"
SOCKETS = ("mgpud.sock", "seccomp.sock", "holder.sock")


def as_nobody(path: Path, kind: socket.SocketKind) -> int:
    """The errno of a connect by an unprivileged process that can see the socket's folder."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        error = 0
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX, kind) as link:
                link.connect(str(path))
        except OSError as failure:
            error = failure.errno or 0
        os.write(writing, bytes([error]))
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        return said.read()[0]


@pytest.mark.parametrize("name", SOCKETS)
def test_unprivileged_process_gets_no_connection(siege: Siege, name: str) -> None:
    path = siege.mgpu.root / name
    kind = socket.SOCK_STREAM if name == "seccomp.sock" else socket.SOCK_SEQPACKET
    for folder in path.parents:
        if folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o111)
    assert as_nobody(path, kind) == errno.EACCES


def reply_inside(siege: Siege, name: str, *words: str) -> str:
    """What root in a granted container hears who was given the socket."""
    kind = "stream" if name == "seccomp.sock" else "packet"
    with siege.attempt("knock", kind, f"/shared/{name}", *words, shared=siege.mgpu.root) as knock:
        return knock.line()


@pytest.mark.parametrize("packet", ["", "{", "x" * 3000, '{"version":1,"verb":"list"}'])
def test_root_of_a_container_that_was_given_the_control_socket(siege: Siege, packet: str) -> None:
    said = reply_inside(siege, "mgpud.sock", packet)
    assert said == "closed" or "only root of this node" in said, said


def message(container: str, nonce: str) -> str:
    state = {"ociVersion": "1.0.2", "id": container, "status": "creating", "pid": 7, "bundle": "/b"}
    return json.dumps({"fds": ["seccompFd"], "pid": 7, "metadata": nonce, "state": state})


def test_root_of_a_container_that_was_given_the_holders_socket(siege: Siege) -> None:
    log = siege.mgpu.root / "log" / "mgpu-holder.log"
    before = log.read_text().count("connection refused")
    assert reply_inside(siege, "seccomp.sock", message("x", "0" * 32), "fd") == "closed"
    assert log.read_text().count("connection refused") == before + 1


def send_listener(siege: Siege, text: str) -> None:
    """As a container runtime does; a memfd stands for a listener."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as runtime:
        runtime.connect(str(siege.mgpu.root / "seccomp.sock"))
        listener = os.memfd_create("listener")
        socket.send_fds(runtime, [text.encode()], [listener])
        os.close(listener)


def more_refused(log: Path, known: int) -> bool:
    return log.read_text().count(REFUSED) == known + 1


def test_listener_with_an_unknown_nonce(siege: Siege) -> None:
    with siege.attempt("greedy") as greedy:
        greedy.line()
        log = siege.mgpu.root / "log" / "mgpud.log"
        for nonce in ("", "0" * 32, greedy.row["id"], "x" * 5000):
            known = log.read_text().count(REFUSED)
            send_listener(siege, message(greedy.made.container, nonce))
            until(functools.partial(more_refused, log, known), "it is refused")
        siege.neighbour_is_well()


def test_second_listener_with_the_nonce_of_another_container(siege: Siege) -> None:
    with siege.attempt("greedy") as greedy:
        greedy.line()
        nonce = greedy.made.config["linux"]["seccomp"]["listenerMetadata"]
        log = siege.mgpu.root / "log" / "mgpud.log"
        send_listener(siege, message("another", nonce))
        until(lambda: "event=listener-without-grant container=another" in log.read_text(), "it is refused")
        assert siege.mgpu.ask("health")["ok"]
        siege.neighbour_is_well()


def test_malformed_messages_do_not_stop_mgpud(siege: Siege) -> None:
    """Deeper than a parser goes: it is dropped, and its descriptor with it."""
    holder = siege.mgpu.pid_of("holder")
    send_listener(siege, '{"state":' * 6000 + "1" + "}" * 6000)
    send_listener(siege, '{"state":{"id":"\\ud800","status":[]},"metadata":"\\ud800"}')
    send_listener(siege, '{"state":{"id":' + "9" * 6000 + "}}")
    with siege.attempt("greedy") as greedy:
        greedy.line()
        siege.neighbour_is_well()
    until(
        lambda: (
            not any("memfd:listener" in file for pid in (holder, siege.mgpud) for file in open_files(pid))
        ),
        "no descriptor of theirs is left",
    )


def open_files(pid: int) -> list[str]:
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found

"""What the tests of the create path share: the two programs, a node's config, and a mgpud that answers as
told.
"""

import functools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from native_sched.daemon.control.prepare import Prepare
from native_sched.daemon.control.resolved_paths import NotHereError
from native_sched.daemon.control.server import Peer
from oci_specs import schemas
from oci_specs.refusal import Refusal
from tests.support.sources import listed

REPOSITORY = Path(__file__).resolve().parents[1]
_SOURCES = {"mgpu-runtime": "runtime_launcher_sources", "mgpu-hook": "runtime_hook_sources"}
NONCE = "0123456789abcdef0123456789abcdef"

Answer = Callable[[dict[str, Any]], dict[str, Any] | bytes | None]


def program(name: str, *, sanitized: bool = True) -> str:
    """Path of mgpu-runtime or mgpu-hook: with sanitizers and time-outs of 1 s, or as the build makes it."""
    return _compile(name, sanitized)


@functools.cache
def _compile(name: str, sanitized: bool) -> str:
    folder = Path(tempfile.mkdtemp(prefix="mgpu-programs-"))
    flags = ["-static"]
    if sanitized:
        flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DHOOK_TIMEOUT_S=1"]
    subprocess.run(
        [
            "cc",
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O2",
            "-g",
            *flags,
            f"-I{REPOSITORY}",
            "-o",
            str(folder / name),
        ]
        + [str(source) for source in listed(REPOSITORY / "runtime_hook", _SOURCES[name])],
        check=True,
    )
    _FOLDERS.append(folder)
    return str(folder / name)


_FOLDERS: list[Path] = []


def remove_programs() -> None:
    """Removes what program built."""
    while _FOLDERS:
        shutil.rmtree(_FOLDERS.pop())
    _compile.cache_clear()


class Mgpud:
    """A control socket at path. answer gets each request and gives the reply: an object, raw bytes, or None
    to hang up.

    requests and peer_pids hold what came, in order. One that prepares asks answer only for what it does not
    do itself; one that does not is of a version before there was `prepare`. ending: a container has ended.
    """

    prepares = exiting = False

    def __init__(self, path: Path, answer: Answer) -> None:
        self.requests: list[dict[str, Any]] = []
        self.peer_pids: list[int] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def verbs(self) -> list[str]:
        return [request["verb"] for request in self.requests]

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                data = peer.recv(256 * 1024)
                if not data:
                    continue
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                pid = struct.unpack("3i", credentials)[0]
                request = json.loads(data)
                if request["verb"] == "prepare":
                    # The launcher hangs up where it does without.
                    with suppress(OSError):
                        self.prepare(peer, request, pid)
                    continue
                reply = self._told(request, pid)
                if reply is not None:
                    peer.send(reply if isinstance(reply, bytes) else json.dumps(reply).encode())

    def _told(self, request: dict[str, Any], pid: int) -> dict[str, Any] | bytes | None:
        self.peer_pids.append(pid)
        self.requests.append(request)
        return self._answer(request)

    def prepare(self, peer: socket.socket, request: dict[str, Any], pid: int) -> None:
        schemas.validate("control", request)
        if not self.prepares:
            peer.send(json.dumps(refused("mgpud knows no verb", "it knows admit")).encode())
            return

        def verb(name: str, message: Mapping[str, Any], _peer: Peer) -> dict[str, Any]:
            reply = self._told({**message, "verb": name}, pid)
            if not isinstance(reply, dict) or reply.get("ok") is not True:
                error = reply.get("error") if isinstance(reply, dict) else None
                if error is None:
                    self.requests.pop()
                    raise NotHereError
                raise Refusal.from_error(error)
            return reply

        admit, release = (functools.partial(verb, name) for name in ("admit", "release"))
        prepare = Prepare(
            admit,
            release,
            lambda message: schemas.validate("control", message),
            "/socket",
            lambda: self.exiting,
        )
        dialogue = prepare.converse(request, Peer(pid, 0))
        try:
            packets = next(dialogue)
            while True:
                for packet in packets:
                    peer.send(packet)
                data = peer.recv(256 * 1024)
                if not data:
                    return
                packets = dialogue.send(data)
        except StopIteration as end:
            for packet in end.value:
                peer.send(packet)


def ok(**members: Any) -> dict[str, Any]:
    return {"version": 1, "ok": True, **members}


def refused(message: str, hint: str) -> dict[str, Any]:
    return {"version": 1, "ok": False, "error": {"code": "no", "message": message, "hint": hint}}


def grant(socket_path: Path, listener: Path, *, cards: int = 1, **edits: Any) -> dict[str, Any]:
    """A grant of simulated cards 0…cards-1, with the null device under their names."""
    names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in range(cards))]
    nodes = [
        {"path": f"/dev/{name}", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666} for name in names
    ]
    return {
        "id": "g1",
        "nonce": NONCE,
        "container_id": "c1",
        "class": "online",
        "policy": "fixed-share",
        "advisory": cards == 0,
        "cards": [
            {
                "index": minor,
                "minor": minor,
                "uuid": f"GPU-{minor}",
                "name": "V100",
                "memory_mib": 4096,
                "core_percent": None,
            }
            for minor in range(cards)
        ],
        "edits": {"devices": nodes if cards else [], "mounts": [], "env": [], "hooks": {}, **edits},
        "listener_path": str(listener),
        "socket": str(socket_path),
    }


class Node:
    """A folder with what mgpu-runtime needs on a node. runtime is the program to wrap."""

    def __init__(self, root: Path, runtime: str, *, sanitized: bool = True) -> None:
        self.root = root
        self.socket = root / "mgpud.sock"
        self.listener = root / "seccomp.sock"
        self.conf = root / "runtime.conf"
        self.script = root / "mgpu-runtime"
        self.log = root / "log.json"
        self.hook = program("mgpu-hook", sanitized=False)
        self.write_conf(
            runtime=runtime,
            socket=str(self.socket),
            seccomp_socket=str(self.listener),
            hook=self.hook,
            python=sys.executable,
            main=str(REPOSITORY / "runtime_hook/main.py"),
        )
        launcher = program("mgpu-runtime", sanitized=sanitized)
        self.script.write_text(f"#!{launcher} --mgpu-config={self.conf}\n")
        self.script.chmod(0o755)

    def write_conf(self, **keys: str) -> None:
        self.conf.write_text("".join(f'{key} = "{value}"\n' for key, value in keys.items()))

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """mgpu-runtime as an engine calls it, with our log."""
        command = [str(self.script), "--log", str(self.log), "--log-format", "json", *words]
        return subprocess.run(command, text=True, capture_output=True, timeout=100, check=False, **options)

    def logged(self) -> list[str]:
        """The messages in the log."""
        if not self.log.exists():
            return []
        records = [json.loads(line) for line in self.log.read_text().splitlines()]
        assert all(record["level"] == "error" for record in records)
        return [record["msg"] for record in records]


def one_line(text: str) -> str:
    """text without its line end; it must be one line of ours."""
    assert text.startswith("mgpu: ")
    assert text.endswith("\n")
    assert text.count("\n") == 1, text
    return text[:-1]


def write_script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return os.fspath(path)

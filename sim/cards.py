"""Runs the card process and asks it questions.

The answers of `account` are the card's exact ledger. They judge tests; nothing that decides may read them.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oci_specs import paths
from oci_specs.refusal import Refusal, printable

# mgpud asks before it serves: what only tests need is loaded where it is needed.
if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

ANSWER_MAX_BYTES = 16 << 20
ANSWER_TIMEOUT_S = 30.0
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Card:
    """One simulated card. arch: RM's architecture.

    context_bytes, copy_context_bytes: what its driver takes for a channel group of the graphics and the copy
    engine.
    """

    index: int
    minor: int
    uuid: str
    name: str
    profile: str
    memory_mib: int
    context_bytes: int
    copy_context_bytes: int
    pci: str
    gpu_id: int
    arch: int
    channel_class: int
    lost: bool


@dataclass(frozen=True, kw_only=True)
class FileUse:
    """What a client holds: its open file's id, its process, bytes summed over its objects."""

    file: int
    tgid: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class GroupTime:
    """The card's time that one channel group has had, exactly.

    client and group are RM handles, file and tgid the open file and process of the client; run_ns is
    executing, switch_ns being loaded and saved; kernel_ns is the work of kernels done; pending: it has more
    to do. enabled: it is on its runlist; open: and not all of its channels are disabled, so that it may run.
    """

    engine: str
    client: int
    group: int
    tsg: int
    file: int
    tgid: int
    enabled: bool
    open: bool
    timeslice_us: int
    run_ns: int
    switch_ns: int
    kernels: int
    kernel_ns: int
    errors: int
    pending: bool


@dataclass(frozen=True, kw_only=True)
class EngineTime:
    """One engine's time, "graphics", "copy" or "video", and the groups that are on it."""

    engine: str
    busy_ns: int
    switch_ns: int
    groups: tuple[GroupTime, ...]


@dataclass(frozen=True, kw_only=True)
class CardAccount:
    """One card's ledger. used_bytes is the heap's own count, which the files' bytes must add up to.

    Times are up to now_ns, by CLOCK_MONOTONIC; ended: groups that are gone, the last few hundred.
    """

    index: int
    used_bytes: int
    files: tuple[FileUse, ...]
    now_ns: int
    slipped_ns: int
    engines: tuple[EngineTime, ...]
    ended: tuple[GroupTime, ...]


@dataclass(frozen=True)
class Span:
    """When a group had a GPU engine, by CLOCK_MONOTONIC; kind: "run", "switch", "enable" or "disable"."""

    kind: str
    engine: str
    tsg: int
    tgid: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A piece of a card's history; next: where to continue; lost: spans forgotten before the read."""

    spans: tuple[Span, ...]
    next: int
    lost: bool
    now_ns: int


@dataclass(frozen=True, kw_only=True)
class Account:
    """Every card's ledger at one moment, and the number of ioctls the card has served."""

    cards: tuple[CardAccount, ...]
    rm_calls: int


def ask(admin_socket: str | Path, question: str) -> Any:
    """The JSON answer to "cards", "account", "files", "driver" or "timeline MINOR SINCE", or to what is to be
    done: "lose MINOR", "reset MINOR".

    Refusal when no card answers there.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as admin:
            admin.settimeout(ANSWER_TIMEOUT_S)
            admin.connect(os.fspath(admin_socket))
            admin.send(question.encode())
            return json.loads(admin.recv(ANSWER_MAX_BYTES))
    except (OSError, ValueError) as error:
        raise Refusal(
            "no-simulated-card",
            f"no simulated GPU answers on {admin_socket} ({error})",
            "start one with mgpu up --sim v100-16:2",
        ) from error


def cards(admin_socket: str | Path) -> list[Card]:
    """The cards of the process behind the socket, by index."""
    return [Card(**row) for row in ask(admin_socket, "cards")]


def account(admin_socket: Path) -> Account:
    """The cards' ledger, taken under the driver's lock: one consistent moment."""
    answer = ask(admin_socket, "account")
    return Account(
        cards=tuple(
            CardAccount(
                index=card["index"],
                used_bytes=card["used_bytes"],
                files=tuple(FileUse(**use) for use in card["files"]),
                now_ns=card["now_ns"],
                slipped_ns=card["slipped_ns"],
                engines=tuple(_engine(engine) for engine in card["engines"]),
                ended=tuple(GroupTime(**group) for group in card["ended"]),
            )
            for card in answer["cards"]
        ),
        rm_calls=answer["rm_calls"],
    )


def _engine(row: dict[str, Any]) -> EngineTime:
    groups = tuple(GroupTime(**group) for group in row["groups"])
    return EngineTime(
        engine=row["engine"], busy_ns=row["busy_ns"], switch_ns=row["switch_ns"], groups=groups
    )


def timeline(admin_socket: Path, minor: int, since: int = 0) -> Timeline:
    """What the card's engines did since entry number `since`, to this moment."""
    spans: list[Span] = []
    lost, asked_ns = False, None
    while True:
        piece = ask(admin_socket, f"timeline {minor} {since}")
        spans += [Span(*row) for row in piece["entries"]]
        lost = lost or piece["lost"]
        asked_ns = asked_ns or piece["now_ns"]
        # What runs now grows while it is read.
        if not piece["entries"] or spans[-1].end_ns >= asked_ns:
            return Timeline(spans=tuple(spans), next=piece["next"], lost=lost, now_ns=piece["now_ns"])
        since = piece["next"]


@dataclass(frozen=True, kw_only=True)
class CardProcess:
    """A running card process and the directory of its sockets."""

    directory: Path
    process: subprocess.Popen[bytes]

    @property
    def card_socket(self) -> Path:
        return self.directory / "card.sock"

    @property
    def admin_socket(self) -> Path:
        return self.directory / "admin.sock"

    def cards(self) -> list[Card]:
        return cards(self.admin_socket)

    def account(self) -> Account:
        return account(self.admin_socket)


@contextmanager
def running(
    directory: Path,
    profiles: str,
    *,
    rm_call_us: int | None = None,
    program: str | None = None,
    options: Sequence[str] = (),
) -> Iterator[CardProcess]:
    """A card process serving `profiles` ("v100-16:2,a10") on sockets in `directory`, which exists, until the
    end.

    rm_call_us: how long a call holds the driver's lock, None for the program's default. options: more
    arguments of the program. Refusal if it does not start.
    """
    import subprocess

    command = [program or paths.simcard(), "--dir", os.fspath(directory), "--cards", profiles]
    if rm_call_us is not None:
        command += ["--rm-call-us", str(rm_call_us)]
    command += options
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            _wait_ready(process)
            yield CardProcess(directory=directory, process=process)
        finally:
            _stop(process)


def _wait_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    readable = select.poll()
    readable.register(process.stdout, select.POLLIN)
    if readable.poll(READY_TIMEOUT_S * 1000) and process.stdout.readline() == b"ready\n":
        return
    _stop(process)
    printed = printable(process.stderr.read().decode(errors="replace").strip())
    raise Refusal(
        "simulated-card-failed",
        f"mgpu-simcard did not start: {printed or f'exit status {process.returncode}'}",
        "name profiles it knows, and a directory that no other GPU serves",
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    import subprocess

    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

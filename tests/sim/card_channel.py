"""A channel as a program uses it: commands and ring entries written into mapped memory, a doorbell rung."""

import mmap
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.cards import CardProcess, ask
from tests.sim.card_protocol import (
    CHANNEL_VOLTA,
    OK,
    TSG_INFO,
    TSG_SCHEDULE,
    USERMODE,
    Client,
    channel_params,
)

US, MS, S = 1_000, 1_000_000, 1_000_000_000
GP_GET, GP_PUT = 0x88, 0x8C
USERD_AT, RING_AT, SEMAPHORES_AT, COMMANDS_AT = 0, 0x1000, 0xA000, 0x10000
MEMORY_BYTES = 1 << 20
COMMAND, ENTRY, SEMAPHORE = struct.Struct("<IIQQ"), struct.Struct("<II"), struct.Struct("<IIQ")
KERNEL, COPY, ACQUIRE, RELEASE = 1, 2, 3, 4


def kernel(ns: int) -> bytes:
    return COMMAND.pack(KERNEL, 0, ns, 0)


def copy(size: int) -> bytes:
    return COMMAND.pack(COPY, 0, size, 0)


def acquire(semaphore: int, value: int, memory: int = 0) -> bytes:
    return COMMAND.pack(ACQUIRE, memory, SEMAPHORES_AT + 16 * semaphore, value)


GATE = 1000  # a semaphore that no other use has


def gate(memory: int = 0) -> bytes:
    """Waits until open_gate() is called for the channel whose memory that is."""
    return acquire(GATE, 1, memory)


def release(semaphore: int, value: int = 1, memory: int = 0) -> bytes:
    return COMMAND.pack(RELEASE, memory, SEMAPHORES_AT + 16 * semaphore, value)


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What a card says happened: [kind, engine, tsg, tgid, start_ns, end_ns]."""

    entries: list[list[Any]]
    lost: bool
    next: int


def timeline(card: CardProcess, minor: int = 0, since: int = 0) -> Timeline:
    """Everything from the entry numbered `since` until now."""
    entries: list[list[Any]] = []
    lost = False
    while True:
        answer = ask(card.admin_socket, f"timeline {minor} {since}")
        entries += answer["entries"]
        lost |= answer["lost"]
        since = answer["next"]
        if not answer["more"]:
            return Timeline(entries=entries, lost=lost, next=since)


def card_totals(card: CardProcess, minor: int = 0) -> dict[str, Any]:
    """The account of one card as it is told."""
    row: dict[str, Any] = ask(card.admin_socket, "account")["cards"][minor]
    return row


class Group:
    """A channel group, and its part of the account."""

    def __init__(self, client: Client, engine: int = 1, *, enabled: bool = True) -> None:
        self.client = client
        self.handle = client.group(engine)
        status, info = client.control(TSG_INFO, bytes(4), self.handle)
        assert status == OK
        self.tsg = int.from_bytes(info, "little")
        if enabled:
            self.schedule(enable=True)

    def schedule(self, *, enable: bool) -> None:
        assert self.client.control(TSG_SCHEDULE, bytes((enable, 0, 0)), self.handle)[0] == OK

    def totals(self, card: CardProcess, minor: int = 0) -> dict[str, Any]:
        found = [
            group
            for engine in card_totals(card, minor)["engines"]
            for group in engine["groups"]
            if (group["client"], group["group"]) == (self.client.root, self.handle)
        ]
        assert len(found) == 1
        return dict(found[0])


class Channel:
    """One channel with 1 MiB of its own: USERD, ring, 1024 semaphores, commands. Entries are never reused.

    bell: to ring with, else one that the client's channels share.
    """

    def __init__(
        self,
        group: Group,
        *,
        entries: int = 4096,
        bell: int | None = None,
        channel_class: int = CHANNEL_VOLTA,
    ) -> None:
        self.client, self.group, self.entries = group.client, group, entries
        status, self.memory = self.client.system_memory(MEMORY_BYTES)
        assert status == OK
        status, fd, at = self.client.map(self.memory, length=MEMORY_BYTES)
        assert status == OK
        assert fd is not None
        self.bytes = mmap.mmap(fd, MEMORY_BYTES, offset=at)
        os.close(fd)
        layout = channel_params(self.memory, userd=USERD_AT, ring=RING_AT, entries=entries)
        self.handle = self.client.made(group.handle, channel_class, layout)
        if bell is None and self.client.bell < 0:
            self.client.bell = doorbell(self.client)
        self.bell = self.client.bell if bell is None else bell
        self.put = 0
        self.free_at = COMMANDS_AT

    def word(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.bytes, at)[0])

    @property
    def get(self) -> int:
        return self.word(GP_GET)

    def write(self, *commands: bytes) -> None:
        """One ring entry, put but not rung."""
        data = b"".join(commands)
        self.bytes[self.free_at : self.free_at + len(data)] = data
        self.write_entry(self.free_at, len(commands))
        self.free_at += len(data)

    def write_entry(self, at: int, commands: int) -> None:
        ENTRY.pack_into(self.bytes, RING_AT + 8 * (self.put % self.entries), at, commands)
        self.put += 1
        struct.pack_into("<I", self.bytes, GP_PUT, self.put & 0xFFFFFFFF)

    def ring(self) -> None:
        os.write(self.bell, (1).to_bytes(8, "little"))

    def submit(self, *commands: bytes) -> int:
        """Writes one entry and rings; the instant before."""
        before = time.monotonic_ns()
        self.write(*commands)
        self.ring()
        return before

    def open_gate(self) -> None:
        """Every channel of the client that waits for this gate goes on at the same instant."""
        struct.pack_into("<I", self.bytes, SEMAPHORES_AT + 16 * GATE, 1)
        self.ring()

    def semaphore(self, index: int) -> tuple[int, int]:
        """(value, time in ns)."""
        value, _, at_ns = SEMAPHORE.unpack_from(self.bytes, SEMAPHORES_AT + 16 * index)
        return value, at_ns

    def wait(self, index: int, value: int = 1, *, timeout_s: float = 60) -> int:
        """The time that the semaphore got at least that value with."""
        deadline = time.monotonic() + timeout_s
        while self.semaphore(index)[0] < value:
            assert time.monotonic() < deadline, f"semaphore {index} is {self.semaphore(index)}"
            time.sleep(0.0005)
        return self.semaphore(index)[1]


def doorbell(client: Client, usermode: int = USERMODE[0]) -> int:
    """A descriptor to ring with."""
    handle = client.made(client.subdevice, usermode)
    status, fd, _ = client.map(handle, device=client.subdevice)
    assert status == OK
    assert fd is not None
    return fd


def longer(attempt: Callable[[int], bool]) -> None:
    """Repeats what needs a kernel of so many ns that the program is in time for: attempt() says whether it
    was.
    """
    assert any(attempt(factor) for factor in (1, 10, 100)), "never in time"

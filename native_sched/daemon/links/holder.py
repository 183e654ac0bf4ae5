"""mgpud's end of holder.sock: seccomp listeners come in, finished ones are given back.

The holder may die too, and a listener whose last copy is closed makes its container's calls fail for good. So
a copy of each is kept here, which is never read, and the next holder gets all of them back under the ids
that they had.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from native_sched.daemon.log import LOG
from oci_specs.refusal import Refusal

# Loaded once containers are served.
if TYPE_CHECKING:
    import asyncio

# native_sched/holder/protocol.h
PROTOCOL = 1
_HEAD = struct.Struct("=IIQ")
_LISTENER, _DROP, _HELLO, _WELCOME, _REFUSED, _ALL, _ALIVE, _STATUS = range(1, 9)
_TAKE_OVER, _SERVING = 1, 2
_FENCE = 1
_SERVED, _BUSY, _UNKNOWN = 1, 2, 3
_MESSAGE_MAX = 65536 + _HEAD.size
_PID_MAX = 1 << 22
# The previous mgpud has to end first: its threads may be in calls of the driver's.
WELCOME_TIMEOUT_S = 60.0
COME_BACK_TIMEOUT_S = 5.0
COME_BACK_S = 0.1
ANSWER_TIMEOUT_S = 2.0
_ROOM_S = 0.005
# How long the copy of an ended container's listener stays.
FORGET_S = 2.0
# Of a runtime's message, what is kept to be given back; from longer ones the annotations are left out.
KEPT_TEXT_MAX = 4096


@dataclass(frozen=True)
class Listener:
    """A seccomp listener as a runtime sent it; the receiver owns fd, and pid is the container's init."""

    holder_id: int
    fd: int
    container_id: str
    metadata: str
    status: str
    pid: int = 0

    @property
    def of_main_process(self) -> bool:
        """An exec's listener does not count: its runtime says that the container runs already."""
        return self.status != "running"


@dataclass(frozen=True)
class _Kept:
    fd: int
    text: bytes
    metadata: str


def parse(text: bytes) -> tuple[str, str, str, int]:
    """(state.id, metadata, state.status, state.pid) of a runtime's message; ValueError when it is none."""
    message = json.loads(text)
    state = message.get("state") if isinstance(message, dict) else None
    metadata = message.get("metadata", "") if isinstance(message, dict) else ""
    if not isinstance(state, dict) or not isinstance(state.get("id"), str) or not isinstance(metadata, str):
        raise ValueError("no container state in the runtime's seccomp message")
    pid = state.get("pid", 0)
    return (
        state["id"],
        metadata,
        str(state.get("status", "")),
        pid if isinstance(pid, int) and 0 < pid <= _PID_MAX else 0,
    )


def shortened(text: bytes) -> bytes:
    """A runtime's message, without the container's annotations if it is long."""
    if len(text) <= KEPT_TEXT_MAX:
        return text
    message = json.loads(text)
    message["state"].pop("annotations", None)
    return json.dumps(message).encode()


class HolderLink:
    """A connection to the holder. Messages are read when the event loop says the socket is readable."""

    def __init__(self, path: str, *, take_over: bool = False) -> None:
        """Returns once no other mgpud lives; Refusal if one does, or if there is no holder.

        take_over: the holder ends the other one.
        """
        self._path = path
        self._kept: dict[int, _Kept] = {}
        # The watchdog's thread says that mgpud is alive.
        self._sending = threading.Lock()
        self.all_came = False
        # Called with their number when every listener that the holder had at the start has come.
        self.when_all_came: Callable[[int], object] = lambda count: None
        self._socket: socket.socket | None = self._connect(_TAKE_OVER if take_over else 0)

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        assert self._socket is not None
        return self._socket.fileno()

    def close(self) -> None:
        self._disconnect()
        for holder_id in list(self._kept):
            self._forget(holder_id)

    def drop(self, holder_id: int) -> None:
        """The holder closes its copy: the container's calls fail from then on if ours is closed too."""
        self._forget(holder_id)
        # A holder that is gone is not given it back.
        with suppress(OSError):
            self._send(_HEAD.pack(_DROP, 0, holder_id))

    def alive(self) -> None:
        """Says that mgpud serves and its threads turn; may be called from any thread."""
        with suppress(OSError):
            self._send(_HEAD.pack(_ALIVE, 0, 0))

    async def answers(self) -> bool:
        """Whether the holder does its work: what runtimes have sent it by now will be here in a moment."""
        import asyncio

        if not self.connected:
            return False
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.setblocking(False)
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await loop.sock_connect(connection, self._path)
                    await loop.sock_sendall(connection, _HEAD.pack(_STATUS, 0, 0))
                    return bool(await loop.sock_recv(connection, _MESSAGE_MAX))
            except OSError:
                return False

    @property
    def held(self) -> int:
        """How many listeners there are, but for some that have ended in the last seconds."""
        return len(self._kept)

    def held_of(self, metadata: str) -> int:
        """Those of one container that have not ended."""
        self.forget_ended()
        return sum(kept.metadata == metadata for kept in self._kept.values())

    def forget_ended(self) -> None:
        """Closes the copies of listeners whose containers are gone."""
        looks = select.poll()
        ids = {kept.fd: holder_id for holder_id, kept in self._kept.items()}
        for fd in ids:
            looks.register(fd, 0)
        for fd, events in looks.poll(0):
            if events & (select.POLLHUP | select.POLLNVAL):
                self._forget(ids[fd])

    def read(self, use: Callable[[Listener], None]) -> bool:
        """Hands every waiting listener to `use`; False once the holder has closed the connection."""
        while self._socket is not None:
            try:
                data, fds, _flags, _address = socket.recv_fds(
                    self._socket, _MESSAGE_MAX, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._one(data, fds, use)
        return False

    def read_all(self, use: Callable[[Listener], None]) -> None:
        """Waits for the listeners that the holder had at the start; returns too when the holder ends."""
        while self.read(use) and not self.all_came:
            waits = select.poll()
            waits.register(self.fileno(), select.POLLIN)
            waits.poll()

    async def serve(self, use: Callable[[Listener], None]) -> None:
        """Reads as long as mgpud runs, and finds the next holder when this one ends. Returns when that one
        has another mgpud, so that mgpud has to end.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            gone = loop.create_future()
            fd = self.fileno()
            loop.add_reader(fd, self._readable, use, gone)
            try:
                while not gone.done():
                    await asyncio.wait([gone], timeout=FORGET_S)
                    self.forget_ended()
            finally:
                loop.remove_reader(fd)
            self._disconnect()
            try:
                await self._find_holder()
            except Refusal as refusal:
                LOG.error("holder-refuses", why=refusal.message)
                return
            LOG.warning("holder-back", listeners=len(self._kept))

    def _readable(self, use: Callable[[Listener], None], gone: asyncio.Future[None]) -> None:
        if not self.read(use) and not gone.done():
            gone.set_result(None)

    def _connect(self, flags: int) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(WELCOME_TIMEOUT_S)
            connection.connect(self._path)
            connection.send(_HEAD.pack(_HELLO, PROTOCOL, flags))
            self._welcome(connection.recv(_HEAD.size))
            connection.setblocking(False)
        except TimeoutError as error:
            connection.close()
            raise Refusal(
                "holder-silent",
                f"the holder did not welcome this mgpud within {WELCOME_TIMEOUT_S:.0f} s",
                "see what it logs: the mgpud before may hang in a call of the driver's",
            ) from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            connection.close()
            raise Refusal(
                "no-holder",
                f"mgpu-holder is not running: no answer on {self._path} ({error.strerror})",
                "start it first",
            ) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _welcome(self, received: bytes) -> None:
        if len(received) != _HEAD.size:
            raise ConnectionResetError("the holder closed the connection")
        kind, value, number = _HEAD.unpack(received)
        if kind == _WELCOME:
            self.fence = bool(number & _FENCE)
        elif kind == _REFUSED and value == _SERVED:
            raise Refusal(
                "already-served",
                f"another mgpud (pid {number}) serves this node",
                "stop that one, or start this one with --take-over",
            )
        elif kind == _REFUSED and value == _BUSY:
            raise Refusal(
                "already-served",
                f"another mgpud (pid {number}) is taking over this node at this moment",
                "try again when it serves",
            )
        else:
            raise Refusal(
                "holder-version",
                f"the holder speaks protocol {number}, this mgpud {PROTOCOL}",
                "install both from one release, and replace the holder first: mgpu upgrade",
            )

    async def _find_holder(self) -> None:
        """Where another mgpud takes over, this one loses its connection, then its life: no error."""
        import asyncio

        said = False
        while not self.connected:
            await asyncio.sleep(COME_BACK_S)
            with suppress(OSError):
                await self._come_back()
            if not self.connected and not said:
                said = True
                LOG.error(
                    "holder-gone", why="containers are served on; new ones are refused until it is back"
                )

    async def _come_back(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.setblocking(False)
            async with asyncio.timeout(COME_BACK_TIMEOUT_S):
                await loop.sock_connect(connection, self._path)
                await loop.sock_sendall(connection, _HEAD.pack(_HELLO, PROTOCOL, _SERVING))
                self._welcome(await loop.sock_recv(connection, _HEAD.size))
                await self._give_back(connection)
        except BaseException:
            connection.close()
            raise
        self._socket = connection

    async def _give_back(self, connection: socket.socket) -> None:
        import asyncio

        self.forget_ended()
        # A listener may end while others are sent, so each is looked up in its turn.
        for holder_id in list(self._kept):
            while (kept := self._kept.get(holder_id)) is not None:
                with suppress(BlockingIOError):
                    socket.send_fds(connection, [_HEAD.pack(_LISTENER, 0, holder_id), kept.text], [kept.fd])
                    break
                await asyncio.sleep(_ROOM_S)
        await asyncio.get_running_loop().sock_sendall(connection, _HEAD.pack(_ALL, 0, len(self._kept)))

    def _send(self, data: bytes) -> None:
        with self._sending:
            if self._socket is not None:
                self._socket.send(data)

    def _disconnect(self) -> None:
        with self._sending:
            if self._socket is not None:
                self._socket.close()
            self._socket = None

    def _forget(self, holder_id: int) -> None:
        kept = self._kept.pop(holder_id, None)
        if kept is not None:
            os.close(kept.fd)

    def _one(self, data: bytes, fds: list[int], use: Callable[[Listener], None]) -> None:
        try:
            kind, _value, number = _HEAD.unpack_from(data)
            if kind == _ALL:
                if not self.all_came:
                    self.all_came = True
                    self.when_all_came(number)
                return
            text = data[_HEAD.size :]
            container_id, metadata, status, pid = parse(text)
            if kind != _LISTENER or len(fds) != 1:
                raise ValueError("not a listener")
            keeps = shortened(text)
        except (ValueError, struct.error, RecursionError):
            for fd in fds:
                os.close(fd)
            if len(data) >= _HEAD.size:
                self.drop(_HEAD.unpack_from(data)[2])
            return
        self._forget(number)
        self._kept[number] = _Kept(os.dup(fds[0]), keeps, metadata)
        use(Listener(number, fds[0], container_id, metadata, status, pid))

"""The control socket: SOCK_SEQPACKET, one JSON object a packet, one reply each, save `prepare`, which takes
several packets either way. Peers are root, and in our own pid and user namespaces: a process inside a granted
container is neither.
"""

import asyncio
import errno
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from native_sched.daemon.log import LOG
from oci_specs.bound_path import LOOK_SECONDS, BoundPath, bind
from oci_specs.refusal import Refusal, quoted

MESSAGE_MAX_BYTES = 128 << 10
REPLY_MAX_BYTES = 4 << 20  # one packet, so one send buffer
VERSION = 1
_UCRED = struct.Struct("=iII")
_SO_SNDBUFFORCE = 32
_ACCEPT_PAUSE_SECONDS = 0.1
_LISTEN_PAUSE_SECONDS = 0.5
# Of connections; the kernel may allow fewer (net.core.somaxconn).
_WAITING_MAX = 4096
# Verbs that take milliseconds, and come by the hundred when a node starts.
_SLOW = (b'"admit"', b'"prepare"')
# Our clients begin with the version and the verb.
_VERB_WITHIN = 64

Reply = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    pid: int
    uid: int


Verb = Callable[[Mapping[str, Any], Peer], Reply]
# Yields packets to send and is given the one that comes back; what it returns are the last ones.
Dialogue = Generator[list[bytes], bytes, list[bytes]]
DialogueVerb = Callable[[Mapping[str, Any], Peer], Dialogue]


def _peer(connection: socket.socket) -> Peer:
    """The process that connected; without its pid if it may not: another may have that when it asks."""
    pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid if _is_allowed(Peer(pid, uid)) else 0, uid)


def _same_namespace(pid: int, kind: str) -> bool:
    try:
        return os.stat(f"/proc/{pid}/ns/{kind}").st_ino == os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return False


def _is_allowed(peer: Peer) -> bool:
    # pid 0: the peer lives in a pid namespace that we cannot see into.
    return (
        peer.uid == 0 and peer.pid > 0 and all(_same_namespace(peer.pid, kind) for kind in ("pid", "user"))
    )


def _check_peer(peer: Peer) -> None:
    if _is_allowed(peer):
        return
    raise Refusal(
        "not-allowed", "only root of this node may speak to mgpud", "run the command as root on the host"
    )


def decode(data: bytes) -> dict[str, Any]:
    """One request; Refusal with a plain line when it is none."""
    if len(data) > MESSAGE_MAX_BYTES:
        raise Refusal("message-size", f"a request is at most {MESSAGE_MAX_BYTES} bytes", "send less")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refusal("message-json", "the request is not JSON", "use the mgpu of this version") from error
    if not isinstance(message, dict) or not isinstance(message.get("verb"), str):
        raise Refusal("message-form", "the request is no object with a verb", "use the mgpu of this version")
    if message.get("version") != VERSION:
        raise Refusal(
            "message-version",
            f"the request has version {quoted(message.get('version'))}, this mgpud speaks {VERSION}",
            "install mgpu and its runtime from one release",
        )
    return message


class Server:
    """Answers requests by a table of verbs. validate(message) raises Refusal for what the schema forbids."""

    def __init__(
        self,
        path: str,
        verbs: Mapping[str, Verb],
        validate: Callable[[dict[str, Any]], None],
        dialogues: Mapping[str, DialogueVerb] | None = None,
    ) -> None:
        self._path = path
        self._verbs = verbs
        self._dialogues = dialogues or {}
        self._validate = validate
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._at: BoundPath | None = None
        self._accepting: asyncio.Task[tuple[socket.socket, Any]] | None = None
        self._taken_away = False
        self._listens = False
        self._creating = asyncio.Lock()

    def listen(self) -> None:
        """Takes the path over from an earlier socket. Where the file system is full or read-only, containers
        that run are served on without, and serve() tries it again; any other OSError is raised.
        """
        try:
            self._listen()
            self._listens = True
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
                raise
            LOG.error("not-listening", socket=self._path, why=error.strerror)

    def _listen(self) -> None:
        self._socket.close()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._at = bind(self._socket, self._path)
        self._socket.listen(_WAITING_MAX)
        self._socket.setblocking(False)

    async def _watch(self) -> None:
        """Ends the accept() of a socket whose path is gone."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._listens and self._at and self._at.is_gone() and self._accepting:
                self._taken_away = True
                self._accepting.cancel()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        sessions: set[asyncio.Task[None]] = {loop.create_task(self._watch())}
        while True:
            while not self._listens:
                await asyncio.sleep(_LISTEN_PAUSE_SECONDS)
                self.listen()
            self._accepting = loop.create_task(loop.sock_accept(self._socket))
            try:
                connection, _address = await self._accepting
            except asyncio.CancelledError:
                if not self._taken_away:
                    raise
                LOG.error("socket-gone", socket=self._path, action="served anew")
                self._listens = self._taken_away = False
                self.listen()
                continue
            except OSError as error:
                # Out of descriptors, say: connections that wait are served once some are free again.
                LOG.error("no-connection-accepted", why=error.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            for each in (connection, *self._waiting()):
                task = loop.create_task(self._session(each))
                sessions.add(task)
                task.add_done_callback(sessions.discard)

    def _waiting(self) -> Iterator[socket.socket]:
        """The connections that are there already: to take one in each turn would take as many turns."""
        with suppress(OSError):
            while True:
                yield self._socket.accept()[0]

    def close(self) -> None:
        self._socket.close()

    async def _session(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        with connection, suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, REPLY_MAX_BYTES)
            peer = _peer(connection)
            while data := await loop.sock_recv(connection, MESSAGE_MAX_BYTES + 1):
                slow = any(verb in data[:_VERB_WITHIN] for verb in _SLOW)
                async with self._turn() if slow else nullcontext():
                    answer = self.answer(data, peer)
                if isinstance(answer, dict):
                    await loop.sock_sendall(connection, json.dumps(answer).encode())
                else:
                    await self._converse(connection, answer)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """A step of one creation at a time, with a turn of the loop before each: hooks of those that were
        admitted, and people, do not wait for all the others.
        """
        async with self._creating:
            await asyncio.sleep(0)
            yield

    async def _converse(self, connection: socket.socket, dialogue: Dialogue) -> None:
        """To its end, or until the peer hangs up."""
        loop = asyncio.get_running_loop()
        with closing(dialogue):
            try:
                packets = next(dialogue)
                while True:
                    for packet in packets:
                        await loop.sock_sendall(connection, packet)
                    data = await loop.sock_recv(connection, MESSAGE_MAX_BYTES + 1)
                    if not data:
                        return
                    async with self._turn():
                        packets = dialogue.send(data)
            except StopIteration as end:
                packets = end.value
            for packet in packets:
                await loop.sock_sendall(connection, packet)

    def answer(self, data: bytes, peer: Peer) -> Reply | Dialogue:
        """The reply to one packet; never raises for what a peer can send."""
        try:
            _check_peer(peer)
            message = decode(data)
            verb, dialogue = self._verbs.get(message["verb"]), self._dialogues.get(message["verb"])
            if verb is None and dialogue is None:
                raise Refusal(
                    "unknown-verb",
                    f"mgpud knows no verb {quoted(message['verb'])}",
                    f"it knows {', '.join(sorted([*self._verbs, *self._dialogues]))}",
                )
            self._validate(message)
            if verb is None:
                assert dialogue is not None  # one of them is there
                return dialogue(message, peer)
            return {"version": VERSION, "ok": True, **verb(message, peer)}
        except Refusal as refusal:
            return {"version": VERSION, "ok": False, "error": refusal.to_error()}

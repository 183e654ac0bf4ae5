"""Metrics over HTTP, on a unix socket for root and, where the node's operator wants it, on a loopback
port."""

import asyncio
import socket
import time
from collections.abc import Callable

from native_sched.daemon.log import LOG, Log
from oci_specs.bound_path import LOOK_SECONDS, BoundPath, bind

_HEAD_MAX_BYTES = 8192
_HEAD_TIMEOUT_S = 5.0
# Scrapers come one at a time; a client with many open connections must not use up mgpud's descriptors.
_CONNECTIONS_MAX = 16
# Every user of the node may connect to the port, so frequent scrapes must not cost mgpud more.
TCP_AGE_S = 0.5

Render = Callable[[bool], tuple[bytes, str]]


class MetricsServer:
    """render: from whether OpenMetrics is asked for to a body and its content type."""

    def __init__(self, render: Render, log: Log = LOG, clock: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._log = log
        self._clock = clock
        self._open = 0
        self._on_path: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._servers: list[asyncio.Server] = []
        self._kept: dict[bool, tuple[float, bytes, str]] = {}

    async def listen_unix(self, path: str) -> None:
        """Readable by root alone, as the control socket is; served anew where its path is gone."""
        self._watching = asyncio.create_task(self._watch(path, await self._listen_unix(path)))

    async def _listen_unix(self, path: str) -> BoundPath:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            at = bind(made, path)
        except OSError:
            made.close()
            raise
        self._on_path = await asyncio.start_unix_server(self._unix, sock=made, limit=_HEAD_MAX_BYTES)
        return at

    async def _watch(self, path: str, at: BoundPath) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not at.is_gone():
                continue
            # Before the next one is there: at a server's end asyncio of Python 3.13 removes the path where
            # its inode has the number of the server's, which the next may have been given.
            if self._on_path:
                self._on_path.close()
            try:
                at = await self._listen_unix(path)
            except OSError:
                # The file system may be full for a while.
                continue
            self._log.error("socket-gone", socket=path, action="served anew")

    async def listen_tcp(self, address: str) -> None:
        """address: a loopback HOST:PORT, an IPv6 HOST in brackets."""
        host, _, port = address.rpartition(":")
        self._servers.append(
            await asyncio.start_server(self._tcp, host.strip("[]"), int(port), limit=_HEAD_MAX_BYTES)
        )

    def close(self) -> None:
        if self._watching:
            self._watching.cancel()
        for server in (self._on_path, *self._servers):
            if server:
                server.close()

    async def _unix(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._session(reader, writer, 0.0)

    async def _tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._session(reader, writer, TCP_AGE_S)

    async def _session(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, age_s: float
    ) -> None:
        self._open += 1
        try:
            if self._open <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_HEAD_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self.answer(head, age_s))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()

    def answer(self, head: bytes, age_s: float) -> bytes:
        """The response to a request's head: never raises for what a client can send."""
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", b"GET only\n", "text/plain", "Allow: GET, HEAD\r\n")
        if target != "/metrics":
            return _response("404 Not Found", b"it is at /metrics\n", "text/plain")
        accept = next((line[7:].strip() for line in lines if line[:7].lower() == "accept:"), "")
        try:
            body, kind = self._text("application/openmetrics-text" in accept, age_s)
        except Exception as error:  # an error in mgpud: the scraper gets it at once
            self._log.unexpected({"exception": error})
            return _response("500 Internal Server Error", b"see mgpud's log\n", "text/plain")
        found = _response("200 OK", body, kind)
        return found if method == "GET" else found[: len(found) - len(body)]

    def _text(self, openmetrics: bool, age_s: float) -> tuple[bytes, str]:
        now_s = self._clock()
        kept = self._kept.get(openmetrics)
        if kept is not None and now_s - kept[0] < age_s:
            return kept[1:]
        body, kind = self._render(openmetrics)
        if age_s:
            self._kept[openmetrics] = now_s, body, kind
        return body, kind


def _response(status: str, body: bytes, kind: str, more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body

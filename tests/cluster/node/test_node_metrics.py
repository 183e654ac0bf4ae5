"""The node process's port for a Prometheus in the cluster: mgpud's own text, and 503 while it is away."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from cluster.node import metrics
from tests.support.commands import run

BODY = b"# TYPE mgpu_driver_up gauge\nmgpu_driver_up 1\n"
GET = b"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n"


class Mgpud:
    """Its socket, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /metrics ")
        self.asked += 1
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY)
        writer.close()


async def ask(port: int, context: ssl.SSLContext | None = None) -> tuple[str, bytes]:
    while True:
        with suppress(ConnectionRefusedError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="mgpu-node" if context else None
            )
            break
        await asyncio.sleep(0.01)
    writer.write(GET)
    found = b""
    with suppress(ConnectionResetError):
        found = await asyncio.wait_for(reader.read(), 10)
    head, _, body = found.partition(b"\r\n\r\n")
    writer.close()
    return head.decode().split("\r\n")[0], body


@asynccontextmanager
async def served(mgpud: Path, tls: Path | None = None) -> AsyncIterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    task = asyncio.create_task(metrics.run(f"127.0.0.1:{port}", mgpud, tls))
    try:
        yield port
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_metrics_are_mgpuds_and_asked_for_once_a_second_at_most(tmp_path: Path) -> None:
    async def talk() -> None:
        mgpud = Mgpud()
        await asyncio.start_unix_server(mgpud.session, tmp_path / "metrics.sock")
        async with served(tmp_path / "metrics.sock") as port:
            found = await asyncio.gather(*(ask(port) for _ in range(20)))
            assert set(found) == {("HTTP/1.1 200 OK", BODY)}
            # Twenty at once take less than twenty seconds, on any machine.
            assert mgpud.asked < 20

    asyncio.run(talk())


def test_scrape_fails_while_mgpud_is_away(tmp_path: Path) -> None:
    async def talk() -> None:
        async with served(tmp_path / "metrics.sock") as port:
            assert (await ask(port))[0] == "HTTP/1.1 503 Service Unavailable"

    asyncio.run(talk())


def test_metrics_are_encrypted_with_the_secrets_key(tmp_path: Path) -> None:
    run(
        *["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-subj", "/CN=mgpu-node", "-addext", "subjectAltName=DNS:mgpu-node", "-days", "1"]
        + ["-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")]
    )

    async def talk() -> None:
        await asyncio.start_unix_server(Mgpud().session, tmp_path / "metrics.sock")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
        async with served(tmp_path / "metrics.sock", tmp_path) as port:
            assert await ask(port, trusted) == ("HTTP/1.1 200 OK", BODY)
            assert (await ask(port))[1] == b""

    asyncio.run(talk())

"""Metrics over HTTP: whatever a client sends, and however many come."""

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.log import Log
from native_sched.daemon.metrics import service as metrics_service
from native_sched.daemon.metrics.server import _CONNECTIONS_MAX, TCP_AGE_S, MetricsServer
from oci_specs.bound_path import LOOK_SECONDS

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
OPENMETRICS = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n"


class Counting:
    """A renderer that counts."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.calls = 0
        self.fails = False
        self.log = Log()
        self.server = MetricsServer(self, self.log, clock=lambda: self.now_s)

    def __call__(self, openmetrics: bool) -> tuple[bytes, str]:
        if self.fails:
            raise ValueError("broken")
        self.calls += 1
        return f"{'o' if openmetrics else 'p'} {self.calls}\n".encode(), "text/plain"


async def ask(
    connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]], data: bytes
) -> bytes:
    reader, writer = await connect()
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_unix_socket_of_roots_and_a_fresh_answer_each_time(tmp_path: Path) -> None:
    counting = Counting()
    path = str(tmp_path / "metrics.sock")
    (tmp_path / "metrics.sock").touch()

    async def talk() -> list[bytes]:
        await counting.server.listen_unix(path)
        found = [
            await ask(lambda: asyncio.open_unix_connection(path), data) for data in (GET, GET, OPENMETRICS)
        ]
        counting.server.close()
        return found

    answers = asyncio.run(talk())
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert [answer.split(b"\r\n\r\n")[1] for answer in answers] == [b"p 1\n", b"p 2\n", b"o 3\n"]
    assert answers[0].startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n")


@pytest.mark.parametrize("instead", [False, True], ids=["removed", "another file"])
def test_socket_that_is_taken_away_is_served_anew(tmp_path: Path, instead: bool) -> None:
    counting = Counting()
    path = tmp_path / "metrics.sock"

    async def talk() -> bytes:
        await counting.server.listen_unix(os.fspath(path))
        path.unlink()
        if instead:
            path.touch()
        async with asyncio.timeout(60):
            while not counting.log.recent():
                await asyncio.sleep(0.05)
        found = await ask(lambda: asyncio.open_unix_connection(path), GET)
        counting.server.close()
        return found

    assert asyncio.run(talk()).endswith(b"p 1\n")
    assert [entry.event for entry in counting.log.recent()] == ["socket-gone"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_path_that_cannot_be_had_again_is_waited_for(tmp_path: Path) -> None:
    counting = Counting()
    folder = tmp_path / "r"
    folder.mkdir()

    async def talk() -> bytes:
        await counting.server.listen_unix(os.fspath(folder / "s"))
        folder.rename(tmp_path / "away")
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert not counting.log.recent()
        folder.mkdir()
        async with asyncio.timeout(60):
            while not counting.log.recent():
                await asyncio.sleep(0.05)
        found = await ask(lambda: asyncio.open_unix_connection(folder / "s"), GET)
        counting.server.close()
        return found

    assert asyncio.run(talk()).endswith(b"p 1\n")


def test_frequent_scrapes_cost_one_collection(tmp_path: Path) -> None:
    counting = Counting()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def talk() -> list[bytes]:
        await counting.server.listen_tcp(f"127.0.0.1:{port}")
        found = []
        for _ in range(50):
            found.append(await ask(lambda: asyncio.open_connection("127.0.0.1", port), GET))
        found.append(await ask(lambda: asyncio.open_connection("127.0.0.1", port), OPENMETRICS))
        counting.now_s += TCP_AGE_S
        found.append(await ask(lambda: asyncio.open_connection("127.0.0.1", port), GET))
        counting.server.close()
        return found

    bodies = [answer.split(b"\r\n\r\n")[1] for answer in asyncio.run(talk())]
    assert bodies == [b"p 1\n"] * 50 + [b"o 2\n", b"p 3\n"]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics HTTP/1.1", b"200"),
        (b"GET /metrics?x=1 HTTP/1.0", b"200"),
        (b"HEAD /metrics HTTP/1.1", b"200"),
        (b"GET / HTTP/1.1", b"404"),
        (b"GET /metrics/../x HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"\xff\x00", b"405"),
        (b"", b"405"),
    ],
)
def test_statuses(request_line: bytes, status: bytes) -> None:
    answer = Counting().server.answer(request_line + b"\r\n\r\n", 0)
    assert answer.split(b" ")[1] == status
    assert (b"p 1" in answer) is (status == b"200" and not request_line.startswith(b"HEAD"))


@given(st.binary(max_size=300))
def test_random_request_gets_one_of_three_heads(data: bytes) -> None:
    answer = Counting().server.answer(data, 0)
    head = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0] in (b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 405 Method Not Allowed")
    assert len(head) <= 5


def test_fault_of_ours_is_a_500_and_a_line_in_the_log() -> None:
    counting = Counting()
    counting.fails = True
    assert counting.server.answer(GET, 0).startswith(b"HTTP/1.1 500 ")
    assert [entry.event for entry in counting.log.recent()] == ["fault"]


def test_abusive_clients_are_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("native_sched.daemon.metrics.server._HEAD_TIMEOUT_S", 0.3)
    counting = Counting()
    path = str(tmp_path / "s")

    async def talk() -> list[bytes]:
        def connect() -> Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
            return asyncio.open_unix_connection(path)

        await counting.server.listen_unix(path)
        found = [await ask(connect, b"x" * 100_000), await ask(connect, b"GET")]
        for _ in range(20):
            idle = [await connect() for _ in range(_CONNECTIONS_MAX)]
            # Unless their time was over already, this is one too many.
            if not (answer := await ask(connect, GET)):
                break
        found.append(answer)
        while not (answer := await ask(connect, GET)):
            await asyncio.sleep(0.05)
        found.append(answer)
        for _reader, writer in idle:
            writer.close()
        counting.server.close()
        return found

    answers = asyncio.run(talk())
    assert answers[:3] == [b"", b"", b""]
    assert answers[3].endswith(b"p 1\n")


def test_port_that_is_taken_is_logged_and_the_socket_served(tmp_path: Path) -> None:
    counting = Counting()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        async def start() -> None:
            for listen in (address, "127.0.0.1:99999"):
                await metrics_service.serve(counting.server, str(tmp_path / "s"), listen, counting.log)
            counting.server.close()

        asyncio.run(start())
    assert [entry.event for entry in counting.log.recent()] == ["metrics-not-served"] * 2
    assert address in counting.log.recent()[0].text
    assert (tmp_path / "s").is_socket()

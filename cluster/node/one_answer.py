"""A port of HTTP with one answer, whatever is asked. A liveness probe's is that the event loop turns, and
what is wrong at the moment.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cluster.process.conditions import Conditions

_HEAD_MAX_BYTES = 8 << 10
_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    body: bytes
    status: str = "200 OK"


async def health(address: str, conditions: Conditions) -> None:
    """For ever: serves HTTP at HOST:PORT. Whatever is asked, the answer is 200: what is away comes back by
    itself, and a restart of this process mends none of it. OSError when the address is taken.
    """

    async def probe() -> Answer:
        return Answer(body="".join(f"{line}\n" for line in conditions.lines() or ["ok"]).encode())

    await serve(address, probe)


async def serve(
    address: str, answer: Callable[[], Awaitable[Answer]], context: ssl.SSLContext | None = None
) -> None:
    """For ever: one answer at HOST:PORT, whatever is asked. OSError when the address is taken."""
    host, _, port = address.rpartition(":")

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await reader.readuntil(b"\r\n\r\n")
                found = await answer()
                head = (
                    f"HTTP/1.1 {found.status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    f"Content-Length: {len(found.body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + found.body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has gone, or asks nothing
        finally:
            writer.close()

    server = await asyncio.start_server(
        session, host or "127.0.0.1", int(port), limit=_HEAD_MAX_BYTES, ssl=context
    )
    async with server:
        await server.serve_forever()

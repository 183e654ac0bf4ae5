"""A liveness probe's answer: that the event loop turns, and what is wrong at the moment."""

from __future__ import annotations

import asyncio

from cluster.process.conditions import Conditions

_HEAD_MAX_BYTES = 8 << 10
_TIMEOUT_S = 5.0


async def run(address: str, conditions: Conditions) -> None:
    """For ever: serves HTTP at HOST:PORT. Whatever is asked, the answer is 200: what is away comes back by
    itself, and a restart of this process mends none of it. OSError when the address is taken.
    """
    host, _, port = address.rpartition(":")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await reader.readuntil(b"\r\n\r\n")
                body = "".join(f"{line}\n" for line in conditions.lines() or ["ok"]).encode()
                head = (
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has gone, or asks nothing
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host or "127.0.0.1", int(port), limit=_HEAD_MAX_BYTES)
    async with server:
        await server.serve_forever()

"""The life of a program: until a signal, or until a part of it fails."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


async def until_stopped(
    *parts: Coroutine[Any, Any, None], farewell: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run the parts until SIGTERM or SIGINT, or until one ends, whose error is raised. The others are
    cancelled and have ended when this returns. farewell: what a signal has done first, while the parts run.
    """
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    tasks = [asyncio.ensure_future(part) for part in (stopped.wait(), *parts)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
        if farewell is not None:
            await farewell()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Waiting for what happens elsewhere, with an end."""

import select
import time
from collections.abc import Callable
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def readable(what: HasFileno | int, timeout_ms: int | None = None) -> bool:
    """Whether there is something to read there, or its end, before the time is over; None: as long as it
    takes.

    Also where the descriptor's number is one that select() does not take.
    """
    poll = select.poll()
    poll.register(what, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def took_s(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def prompt(attempt: Callable[[], float], what: str, *, within_s: float = 1.0, tries: int = 4) -> None:
    """attempt() took less than within_s in one of a few tries: a machine that is busy elsewhere may spoil
    any.
    """
    took: list[float] = []
    while not took or (took[-1] >= within_s and len(took) < tries):
        took.append(attempt())
    assert took[-1] < within_s, f"{what}: {', '.join(f'{one:.2f}' for one in took)} s"


def until(
    condition: Callable[[], bool], what: str, *, timeout_s: float = 60.0, poll_s: float = 0.02
) -> None:
    """Return once condition() is true; AssertionError naming `what` after timeout_s seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(poll_s)

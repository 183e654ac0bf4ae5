"""A container that asks its GPU, by the driver's own library, for each line that it is told."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.bundle import Bundle, bundle
from tests.support.started import Foreground

ENV = {"MGPU_MEMORY_MIB": "512"}
# The main process asks, and with it all that it starts.
ASKS = (
    "sh",
    "-c",
    "echo up; while read x; do gpustat --no-header >/dev/null 2>&1 && echo served || echo not; done",
)


@contextmanager
def asking(
    runtime: Path, change: Callable[[Bundle], None] = lambda made: None
) -> Iterator[tuple[Bundle, Foreground]]:
    """Once it is up. change: made to its bundle before it starts."""
    with bundle(*ASKS, env=ENV) as made:
        change(made)
        with made.running(runtime) as running:
            assert running.line() == "up"
            yield made, running


def is_served(running: Foreground) -> bool:
    running.tell("x")
    return running.line() == "served"

"""Where an engine of the tests' own has its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import host
from tests.support.processes import kill_left_behind


@contextmanager
def engine_home(name: str) -> Iterator[Path]:
    """As host.home(); what outlives the engine ends with it: shims, monitors and containers' cgroups."""
    with host.home(name) as home:
        try:
            yield home
        finally:
            kill_left_behind(home)
            host.remove_cgroups(home.name)

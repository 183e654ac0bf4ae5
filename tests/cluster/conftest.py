"""What the tests of the cluster share: an API server of their own."""

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from tests.cluster import api_server
from tests.cluster.api_server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server.running() as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    wanted = inspect.signature(pyfuncitem.function).parameters
    asyncio.run(pyfuncitem.function(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True

"""One mgpu for all tests of a module, each of which leaves nothing behind."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter


def shared_mgpu(*args: Any, **options: Any) -> Any:
    """A fixture of a module's; arguments as arbiter.running()'s."""

    @pytest.fixture(scope="module")
    def shared(private_host: None) -> Iterator[Arbiter]:
        with arbiter.running(*args, **options) as running:
            yield running

    return shared


def lasting_mgpu(*args: Any, **options: Any) -> tuple[Any, Any]:
    """Fixtures that a module calls `lasting`, and `mgpu`, which is the same and has to be empty after each
    test; arguments as shared_mgpu()'s.
    """

    @pytest.fixture
    def mgpu(lasting: Arbiter) -> Iterator[Arbiter]:
        yield lasting
        arbiter.until_empty(lasting)

    return shared_mgpu(*args, **options), mgpu

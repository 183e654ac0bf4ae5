"""One mgpu for all tests of a module, each of which leaves nothing behind."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter


def lasting_mgpu(*args: Any, **options: Any) -> tuple[Any, Any]:
    """Fixtures that a module calls `lasting`, and `mgpu`, which is the same and has to be empty after each
    test; arguments as arbiter.running()'s.
    """

    @pytest.fixture(scope="module")
    def lasting(private_host: None) -> Iterator[Arbiter]:
        with arbiter.running(*args, **options) as running:
            yield running

    @pytest.fixture
    def mgpu(lasting: Arbiter) -> Iterator[Arbiter]:
        yield lasting
        arbiter.until_empty(lasting)

    return lasting, mgpu

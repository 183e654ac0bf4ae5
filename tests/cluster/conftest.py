"""What the tests of the cluster share: an API server of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import api_server
from tests.cluster.api_server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server.running() as running:
        yield running

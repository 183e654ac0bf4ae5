from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.vfio_user import Card, running


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Card]:
    with running(tmp_path) as started:
        yield started

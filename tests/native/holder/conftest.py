from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.holder import Holder, holding


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    with holding(tmp_path) as running:
        yield running

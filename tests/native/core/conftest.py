import ctypes
from collections.abc import Iterator

import pytest

from tests.native.scheduling import ByHand


@pytest.fixture
def hand(sched: ctypes.CDLL) -> Iterator[ByHand]:
    with ByHand(sched) as made:
        yield made

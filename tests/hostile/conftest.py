"""One mgpu for all attempts of a file: what one of them spoils, the next ones show."""

from collections.abc import Iterator

import pytest

from tests.hostile import siege as sieges
from tests.hostile.siege import Siege
from tests.support.programs import Programs


@pytest.fixture(scope="module")
def besieged(private_host: None, built: Programs) -> Iterator[Siege]:
    with sieges.laid(built) as laid:
        yield laid


@pytest.fixture
def siege(besieged: Siege) -> Iterator[Siege]:
    """After each attempt nothing is left of it."""
    yield besieged
    besieged.over()

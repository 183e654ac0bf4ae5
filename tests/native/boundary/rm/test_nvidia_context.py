"""What the driver takes for a channel group by itself, measured on a simulated card, where it is known."""

import errno

import pytest

from tests.native.nvidia_mediated import World
from tests.support.rm_numbers import NV2080_CTRL_CMD_FB_GET_INFO_V2

MIB = 1 << 20
# Of the profile h200.
CONTEXT_MIB, COPY_CONTEXT_MIB = 240, 2
FB_INFO = NV2080_CTRL_CMD_FB_GET_INFO_V2


def test_context_bytes_match_the_cards_count(here: World) -> None:
    assert here.engine.context_bytes(0, copies=False) == CONTEXT_MIB * MIB
    assert here.engine.context_bytes(0, copies=True) == COPY_CONTEXT_MIB * MIB
    # Nothing of it stays.
    assert here.card.account().cards[0].used_bytes == 0


def test_driver_that_does_not_tell_what_is_free(here: World) -> None:
    here.refuses(control=FB_INFO)
    with pytest.raises(OSError) as failed:
        here.engine.context_bytes(0, copies=False)
    assert failed.value.errno == errno.EIO
    assert here.card.account().cards[0].used_bytes == 0


def test_card_that_there_is_not(here: World) -> None:
    with pytest.raises(OSError) as failed:
        here.engine.context_bytes(7, copies=False)
    assert failed.value.errno == errno.ENODEV

"""What the scheduler knows of a card, and does without on it."""

from ctypes import Structure, c_char, c_uint32
from enum import IntEnum


class Without(IntEnum):
    """enum mgpu_without: what the scheduler does without on a card."""

    DISABLE_CHANNELS = 0
    TIMESLICES = 1
    GROUP_IDS = 2
    USERD = 3
    ENGINE_STATUS = 4
    UTILIZATION = 5


class Chip(Structure):
    """struct mgpu_chip: what is known of a card's chip.

    name, header: empty where nothing is. has_get: its USERD shows what is fetched, where the class of the
    channel has the word.
    """

    name: bytes
    header: bytes
    has_get: int
    _fields_ = [("name", c_char * 16), ("header", c_char * 32), ("has_get", c_uint32)]

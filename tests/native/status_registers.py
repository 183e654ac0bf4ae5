"""Registers of a card that say which of its engines run."""

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.native.fake_rm import MigRm
from tests.native.nvidia_parts import Driver, driver
from tests.support import rm_numbers as nv

BAR_BYTES = 1 << 20

BUSY = 0x8000_0000


def write_word(bar: Path, at: int, word: int) -> None:
    with bar.open("r+b") as f:
        f.seek(at)
        f.write(struct.pack("I", word))


def status(nvidia: Driver, card: int = 0) -> list[tuple[int, int, int]]:
    """The group, whether it executes, and on which engines: a bit each."""
    out = (ctypes.c_uint32 * 48)()
    n = nvidia.call("engines", card, out)
    assert n >= 0
    return [(out[3 * i], out[3 * i + 1], out[3 * i + 2]) for i in range(n)]


def engines(nvidia: Driver, card: int = 0) -> list[tuple[int, int]]:
    return [one[:2] for one in status(nvidia, card)]


GRAPHICS, COPY0, COPY1 = 1, nv.NV2080_ENGINE_TYPE_COPY0, nv.NV2080_ENGINE_TYPE_COPY0 + 1


@contextmanager
def on_instances(folder: Path, mig: MigRm) -> Iterator[Driver]:
    with driver(folder, mig) as nvidia:
        for index, instance in enumerate(((3, 0), (3, 1), (5, 0))):
            nvidia.add_card(index, instance=instance)
        yield nvidia

"""What a disk was told, in order, and what it holds when power is cut.

QEMU's driver blklogwrites writes the log, in the format of Linux's dm-log-writes: a sector about the log,
then an entry of one sector for each write or flush, followed by what was written. A disk keeps in its cache
whatever it was not told to flush. So any of the writes after the last flush may be lost, or there in part.
"""

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
_HEAD = struct.Struct("<QQQI")
_ENTRY = struct.Struct("<QQQQ")
_MAGIC, _VERSION = 0x6A736677736872, 1
_FLUSH, _FUA, _DISCARD = 1, 2, 4


class NotALog(Exception):
    """Why what is there is no such log."""


@dataclass(frozen=True)
class Entry:
    """end: the log's size once this was written down; data is what lies before that."""

    sector: int
    sectors: int
    flags: int
    end: int

    @property
    def flushes(self) -> bool:
        return bool(self.flags & _FLUSH)

    @property
    def stays(self) -> bool:
        """Written through the cache."""
        return bool(self.flags & _FUA)


@dataclass(frozen=True)
class Kept:
    """The first `sectors` of an entry's, which are on the disk."""

    entry: Entry
    sectors: int


def entries(log: Path) -> list[Entry]:
    return list(_entries(log))


def _entries(log: Path) -> Iterator[Entry]:
    size = log.stat().st_size
    with log.open("rb") as file:
        magic, version, _count, sector = _HEAD.unpack(file.read(_HEAD.size).ljust(_HEAD.size, b"\0"))
        if (magic, version, sector) != (_MAGIC, _VERSION, SECTOR):
            raise NotALog(f"{log}: magic {magic:x}, version {version}, sectors of {sector} bytes")
        at = SECTOR
        while at + SECTOR <= size:
            file.seek(at)
            first, count, flags, _ = _ENTRY.unpack(file.read(_ENTRY.size))
            at += SECTOR + (0 if flags & _DISCARD else count * SECTOR)
            if at > size or not (count or flags):
                # QEMU ended while it wrote this one down.
                return
            yield Entry(first, 0 if flags & _DISCARD else count, flags, at)


def left(told: Sequence[Entry], seed: int) -> list[Kept]:
    """What of that is on the disk when power is cut now, with the luck of this seed."""
    flushed = max((number for number, entry in enumerate(told, start=1) if entry.flushes), default=0)
    luck = random.Random(seed)
    kept = [Kept(entry, entry.sectors) for entry in told[:flushed]]
    for entry in told[flushed:]:
        some = luck.choice((0, luck.randint(0, entry.sectors), entry.sectors))
        kept.append(Kept(entry, entry.sectors if entry.stays else some))
    return [one for one in kept if one.sectors]


def write(log: Path, kept: Sequence[Kept], disk: Path) -> None:
    """Onto a disk as it was when the log began."""
    with log.open("rb") as source, disk.open("r+b") as target:
        for one in kept:
            source.seek(one.entry.end - one.entry.sectors * SECTOR)
            target.seek(one.entry.sector * SECTOR)
            target.write(source.read(one.sectors * SECTOR))

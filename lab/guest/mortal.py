"""Where mgpud is killed: in calls of its own of NVIDIA's driver (mortal.c)."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LIBRARY, FILE = "/project/mgpu/programs/mortal.so", Path("/run/lab-mortal")
HEAD, POINT, POINTS = struct.Struct("<II"), struct.Struct("<III"), 32
RM = ord("F") << 8


@dataclass(frozen=True)
class Point:
    """call: RM | an escape, or a command of nvidia-uvm. inner: the class that is allocated, the control."""

    name: str
    call: int
    inner: int = 0


def make() -> None:
    FILE.write_bytes(bytes(HEAD.size + POINTS * POINT.size))


def arm(points: Sequence[Point], *, after: bool) -> None:
    """mgpud dies in each of these calls in turn: before the driver has it, or once it has answered."""
    with FILE.open("r+b", buffering=0) as file:
        file.write(HEAD.pack(0, 0) + b"".join(POINT.pack(one.call, one.inner, after) for one in points))
        file.seek(0)
        file.write(HEAD.pack(0, len(points)))


def passed() -> int:
    """In how many of them it has died."""
    return int(HEAD.unpack_from(FILE.read_bytes())[0])

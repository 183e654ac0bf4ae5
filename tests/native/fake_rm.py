"""A resource manager that is a Python function: it says OK, notes what it was asked, and tests change what it
says.
"""

import ctypes
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support import rm_numbers as nv

FREE, CONTROL, ALLOC = nv.NV_ESC_RM_FREE, nv.NV_ESC_RM_CONTROL, nv.NV_ESC_RM_ALLOC
DUP, SHARE, VID_HEAP = nv.NV_ESC_RM_DUP_OBJECT, nv.NV_ESC_RM_SHARE, nv.NV_ESC_RM_VID_HEAP_CONTROL
MAP = nv.NV_ESC_RM_MAP_MEMORY
CARD_INFO, REGISTER_FD, OS_EVENT = nv.NV_ESC_CARD_INFO, nv.NV_ESC_REGISTER_FD, nv.NV_ESC_ALLOC_OS_EVENT
VERSION = nv.NV_ESC_CHECK_VERSION_STR
RUNLIST_BASE = nv.NV2080_CTRL_CMD_GPU_GET_ENGINE_RUNLIST_PRI_BASE
DISABLE = nv.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
ROOT, DEVICE, SUBDEVICE = nv.NV01_ROOT_CLIENT, nv.NV01_DEVICE_0, nv.NV20_SUBDEVICE_0
GPU_INSTANCE, COMPUTE_INSTANCE = nv.AMPERE_SMC_PARTITION_REF, nv.AMPERE_SMC_EXEC_PARTITION_REF


def cmd(nr: int, size: int) -> int:
    return 3 << 30 | size << 16 | ord("F") << 8 | nr


def peek(at: int, layout: str, offset: int = 0) -> int:
    value: int = struct.unpack_from(layout, ctypes.string_at(at + offset, struct.calcsize(layout)))[0]
    return value


def poke(at: int, layout: str, offset: int, value: int) -> None:
    data = struct.pack(layout, value)
    ctypes.memmove(at + offset, data, len(data))


@dataclass
class Call:
    nr: int
    size: int
    outer: bytes
    params: bytes
    inode: int
    passed_inode: int


@dataclass
class Rm:
    calls: list[Call] = field(default_factory=list)
    answer: Callable[[int, int], int] = lambda nr, arg: 0
    bases: dict[int, int] = field(default_factory=dict)
    chip: tuple[int, int] | None = (0x170, 2)
    """Architecture and implementation; None: RM does not say."""
    listed: tuple[int, int] = (84, 3)
    """How the driver's version lists runlists: engines, and lists of them."""
    cards: int = 0
    next_handle: int = 0xC1D0_0000

    def __call__(self, fd: int, command: int, arg: int) -> int:
        nr, size = command & 0xFF, command >> 16 & 0x3FFF
        outer = ctypes.string_at(arg, size)
        params = b""
        if nr in (ALLOC, CONTROL) and (at := peek(arg, "Q", 0x10)):
            params = ctypes.string_at(at, peek(arg, "I", 0x18 if size == 32 else 0x20))
        passed = {REGISTER_FD: 0, MAP: 0x30}.get(nr)
        self.calls.append(
            Call(
                nr,
                size,
                outer,
                params,
                os.fstat(fd).st_ino,
                0 if passed is None else os.fstat(peek(arg, "i", passed)).st_ino,
            )
        )
        self._own(nr, arg)
        return self.answer(nr, arg)

    def _own(self, nr: int, arg: int) -> None:
        if nr == CARD_INFO:
            for i in range(self.cards):
                poke(arg, "B", 72 * i, 1)
                poke(arg, "B", 72 * i + 8, 0x65)
                poke(arg, "I", 72 * i + 16, 0x6500)
                poke(arg, "I", 72 * i + 56, i)
        elif nr == ALLOC and not peek(arg, "I", 8):
            poke(arg, "I", 8, self.next_handle)
        elif nr == CONTROL and peek(arg, "I", 8) == nv.NV2080_CTRL_CMD_MC_GET_ARCH_INFO:
            self._tell_chip(arg)
        elif nr == CONTROL and peek(arg, "I", 8) == RUNLIST_BASE:
            self._tell_base(arg)

    def _tell_chip(self, arg: int) -> None:
        if self.chip is None:
            poke(arg, "I", 0x1C, 0x56)
            return
        for i, number in enumerate(self.chip):
            poke(peek(arg, "Q", 0x10), "I", 4 * i, number)

    def _tell_base(self, arg: int) -> None:
        engines, lists = self.listed
        if peek(arg, "I", 0x18) != 4 * engines * lists:
            poke(arg, "I", 0x1C, 0x1F)
            return
        params = peek(arg, "Q", 0x10)
        poke(params, "I", 4 * engines, self.bases.get(peek(params, "I"), 0xFFFF_FFFF))


@dataclass
class MigRm(Rm):
    """One whose card has MIG instances, each with runlists of its own, which it tells subscribers alone.

    instances: by (GPU instance, compute instance), bases by engine. caps: the folder of the capabilities'
    nodes.
    """

    instances: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    caps: str = ""
    objects: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By root and handle: class, and what it is about."""
    shares: dict[int, int] = field(default_factory=dict)
    """By root: the client whose address space its device has."""
    most: int = 0
    """Subscriptions at a time."""

    def subscribed(self, root: int) -> tuple[int, int] | None:
        found = {
            class_id: about
            for (of, _), (class_id, about) in self.objects.items()
            if of == root and class_id in (GPU_INSTANCE, COMPUTE_INSTANCE)
        }
        if len(found) < 2:
            return None
        return found[GPU_INSTANCE], found[COMPUTE_INSTANCE]

    @property
    def mig_subscriptions(self) -> int:
        return sum(of in (GPU_INSTANCE, COMPUTE_INSTANCE) for of, _ in self.objects.values())

    def _own(self, nr: int, arg: int) -> None:
        if nr != CONTROL:
            super()._own(nr, arg)
        root = peek(arg, "I")
        if nr == ALLOC:
            poke(arg, "I", 0x28, self._made(arg))
        elif nr == FREE:
            self.objects.pop((root, peek(arg, "I", 8)), None)
        elif nr == CONTROL and peek(arg, "I", 8) == nv.NV2080_CTRL_CMD_MC_GET_ARCH_INFO:
            self._tell_chip(arg)
        elif nr == CONTROL and peek(arg, "I", 8) == RUNLIST_BASE:
            self.bases = self.instances.get(self.subscribed(root) or (-1, -1), {})
            self._tell_base(arg)
            if peek(peek(arg, "Q", 0x10), "I") not in self.bases:
                poke(arg, "I", 0x1C, 0x1F)

    def _made(self, arg: int) -> int:
        root, parent, handle, class_id = (peek(arg, "I", 4 * i) for i in range(4))
        params = peek(arg, "Q", 0x10)
        about = 0
        if class_id == ROOT:
            self.next_handle += 1
        elif class_id == DEVICE:
            self.shares[root] = peek(params, "I", 4)
        elif class_id in (GPU_INSTANCE, COMPUTE_INSTANCE):
            about = peek(params, "I", 8)
            if status := self._refused(root, parent, class_id, about, peek(params, "Q")):
                return status
        self.objects[root, handle] = class_id, about
        self.most = max(self.most, self.mig_subscriptions)
        return 0

    def _refused(self, root: int, parent: int, class_id: int, about: int, descriptor: int) -> int:
        above, of = self.objects.get((root, parent), (0, 0))
        gpu = class_id == GPU_INSTANCE
        if above != (SUBDEVICE if gpu else GPU_INSTANCE):
            return 0x36
        if self.shares[root] != root:
            return 0x63  # STATE_IN_USE: an address space that is not the instance's
        if not any(about == (one[0] if gpu else one[1]) for one in self.instances if gpu or one[0] == of):
            return 0x1F
        # The node of instance N is nvidia-capN, that of compute instance M of it 10 N + M.
        minor = about if gpu else 10 * of + about
        named = os.readlink(f"/proc/self/fd/{descriptor}")
        return 0 if named == f"{self.caps}/nvidia-cap{minor}" else 0x1B

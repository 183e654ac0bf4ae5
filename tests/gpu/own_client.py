"""Our own RM client: what root can see of a card."""

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gpu import rm
from tests.gpu.backend import Backend
from tests.gpu.supervise import Made
from tests.support import chips
from tests.support.rm_numbers import NV01_MEMORY_LOCAL_PRIVILEGED

PAGE = 4096
DEVICES = Path("/sys/bus/pci/drivers/nvidia")
DEVICE, SUBDEVICE, REGISTERS, FIRST_DUPLICATE = 0xCAFE0080, 0xCAFE2080, 0xCAFE003F, 0xCAFE9000
SHARE_CLIENT, ACCESS_DUP, READ_ONLY = 3, 1, 1
ARCH_INFO, ARCH_BYTES, COPY_ENGINES = 0x20801701, 16, 4
NO_RUNLIST = 0xFFFFFFF0
# How many engines a list has and how many lists there are, by the driver's version: 570, 560, 550, 545, 535.
RUNLIST_SHAPES = ((84, 3), (84, 2), (64, 2), (63, 2), (62, 2))


class Userd:
    """A page of a program's USERD."""

    def __init__(self, view: mmap.mmap, offset: int, node: str) -> None:
        self.node = node
        self._view = memoryview(view).cast("I")
        self._offset = offset

    def word(self, at: int) -> int:
        return int(self._view[(self._offset + at) // 4])


class OwnClient:
    """A client with a device and a subdevice of the first card; use as a context."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.ctl = backend.open("nvidiactl")
        self._files: list[int] = []
        self.client = self._alloc(rm.alloc(0, 0, 0, rm.ROOT))
        self._alloc(rm.alloc(self.client, self.client, DEVICE, rm.DEVICE, bytes(56)))
        self._alloc(rm.alloc(self.client, DEVICE, SUBDEVICE, rm.SUBDEVICE, bytes(4)))
        self._duplicates = FIRST_DUPLICATE
        self._registers: mmap.mmap | None = None

    def __enter__(self) -> "OwnClient":
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (*self._files, self.ctl):
            os.close(fd)

    def _make(self, fd: int, call: rm.Call, status_at: int, what: str) -> None:
        error = self.backend.on_file(fd, call)
        if error or call.u32(status_at):
            raise rm.RmError(what, -error if error else call.u32(status_at))

    def _alloc(self, call: rm.Call) -> int:
        self._make(self.ctl, call, 0x28, f"class {call.u32(12):#x}")
        return call.u32(8)

    def _card(self) -> int:
        """A new open file of the first card, registered."""
        fd = self.backend.open("nvidia0")
        self._files.append(fd)
        self.backend.on_file(
            fd, rm.Call(rm.REGISTER_FD, bytearray(struct.pack("<i", self.ctl)), bytearray(), -1)
        )
        return fd

    def map_userd(self, theirs: int, channel: Made) -> Userd:
        """By SHARE through the program's own file, DUP_OBJECT and MAP_MEMORY here."""
        share = struct.pack(
            "<IIIIHBBI", channel.client, channel.userd, self.client, ACCESS_DUP, SHARE_CLIENT, 0, 0, 0
        )
        self._make(theirs, rm.Call(rm.SHARE, bytearray(share), bytearray(), -1), 0x14, "SHARE")
        self._duplicates += 1
        dup = struct.pack("<7I", self.client, DEVICE, self._duplicates, channel.client, channel.userd, 0, 0)
        self._make(self.ctl, rm.Call(rm.DUP, bytearray(dup), bytearray(), -1), 0x18, "DUP_OBJECT")
        page = channel.userd_offset // PAGE * PAGE
        worst: rm.RmError | OSError = rm.RmError("MAP_MEMORY", 0)
        for node, fd in (("nvidia0", self._card()), ("nvidiactl", self.backend.open("nvidiactl"))):
            self._files.append(os.dup(fd))
            try:
                return Userd(self._map(self._duplicates, page, PAGE, fd), channel.userd_offset - page, node)
            except (rm.RmError, OSError) as error:
                worst = error
        raise worst

    def _map(self, memory: int, offset: int, length: int, fd: int) -> mmap.mmap:
        outer = struct.pack(
            "<IIIIQQQIIiI", self.client, DEVICE, memory, 0, offset, length, 0, 0, READ_ONLY, fd, 0
        )
        self._make(self.ctl, rm.Call(rm.MAP, bytearray(outer), bytearray(), -1), 0x28, "MAP_MEMORY")
        return mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ)

    def register(self, at: int, devices: Path = DEVICES) -> Callable[[], int]:
        """Reads one of the first card's BAR0.

        Where the kernel lets nobody map the PCI device's file (IO_STRICT_DEVMEM, as Debian's), RM maps it for
        root.
        """
        [bar, *_] = sorted(devices.glob("*/resource0"))
        with open(bar, "rb") as file:
            try:
                view = mmap.mmap(
                    file.fileno(), PAGE, mmap.MAP_SHARED, mmap.PROT_READ, offset=at // PAGE * PAGE
                )
                return _word(view, at % PAGE)
            except OSError:
                pass
        if not self._registers:
            registers = self._alloc(rm.alloc(self.client, DEVICE, REGISTERS, NV01_MEMORY_LOCAL_PRIVILEGED))
            self._registers = self._map(registers, 0, bar.stat().st_size, self._card())
        return _word(self._registers, at)

    def duplicate_client(self, theirs: int) -> int:
        """RM's status for the duplicate of another's client: it says whether there is one."""
        self._duplicates += 1
        dup = struct.pack("<7I", self.client, self.client, self._duplicates, theirs, theirs, 0, 0)
        call = rm.Call(rm.DUP, bytearray(dup), bytearray(), -1)
        error = self.backend.on_file(self.ctl, call)
        return -error if error else call.u32(0x18)

    def runlist_bases(self) -> dict[int, int]:
        """By engine type: graphics and the first copy engines."""
        found = {}
        for engine in (rm.GRAPHICS, *(9 + i for i in range(COPY_ENGINES))):
            for engines, lists in RUNLIST_SHAPES:
                params = struct.pack("<I", engine).ljust(4 * engines * lists, b"\0")
                call = rm.control(self.client, SUBDEVICE, rm.RUNLIST_BASE, params)
                if self.backend.on_file(self.ctl, call) == 0 and call.u32(0x1C) == 0:
                    (base,) = struct.unpack_from("<I", call.params, 4 * engines)
                    if 0 < base < NO_RUNLIST:
                        found[engine] = base
                    break
        if rm.GRAPHICS not in found:
            raise rm.RmError("ENGINE_RUNLIST_BASE", call.u32(0x1C))
        return found

    def graphics_status(self, figures: dict[str, Any]) -> Callable[[], int]:
        """Reads what the graphics engine says it runs: a number of a group, and bit 31 while it is busy."""
        chip = self.chip()
        figures["chip"] = chip.name
        registers, base = self.backend.registers()
        if registers >= 0:
            with os.fdopen(registers, "rb") as file:
                view = mmap.mmap(file.fileno(), os.fstat(registers).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
                return _word(view, (0 if chip.whole_card else base) + chip.status)
        if chip.whole_card:
            return self.register(chip.status)
        bases = self.runlist_bases()
        figures["runlist_bases"] = {hex(engine): hex(base) for engine, base in bases.items()}
        # The others of its runlist: what is there while the first one executes.
        others = [
            self.register(bases[rm.GRAPHICS] + chip.status + i * chip.stride) for i in range(1, chip.words)
        ]
        figures["other_words"] = [hex(read()) for read in others]
        return self.register(bases[rm.GRAPHICS] + chip.status)

    def chip(self) -> chips.Chip:
        """RmError where there is no row of facts of it: its engines cannot be seen."""
        call = rm.control(self.client, SUBDEVICE, ARCH_INFO, bytes(ARCH_BYTES))
        error = self.backend.on_file(self.ctl, call)
        architecture, implementation = struct.unpack_from("<2I", call.params)
        for one in chips.chips():
            if not error and (one.architecture, one.implementation) == (architecture, implementation):
                return one
        raise rm.RmError(f"chip {architecture:#x} {implementation:#x}", call.u32(0x1C))


def _word(view: mmap.mmap, at: int) -> Callable[[], int]:
    words = memoryview(view).cast("I")
    return lambda: int(words[at // 4])

"""A channel that copies, by direct calls of the driver's: data of the card's goes to another place there, and
back to the host, which knows it.
"""

import mmap
import os
import struct
import time

from lab.tests.groups import Working
from lab.tests.nv import HOST, MIB, SUBDEVICE, Client, mapped, of_card
from lab.tests.uvm import BASE
from tests.gpu import rm
from tests.support.rm_numbers import (
    AMPERE_DMA_COPY_B,
    AMPERE_USERMODE_A,
    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN,
)

# In the channel's area, where lab/tests/groups.py has its ring and USERD.
ENTRIES, USERD_AT, SEMAPHORE_AT, WORDS_AT, WORDS_BYTES = 1024, 8192, 0x3000, 0x10000, 1024
GP_PUT, DOORBELL, REGISTERS_BYTES = USERD_AT + rm.GP_PUT, 0x90, 0x10000
# Low bytes of classes.
COPY_KIND, USERMODE_KIND = AMPERE_DMA_COPY_B & 0xFF, AMPERE_USERMODE_A & 0xFF
PIECE, HOSTS, THERE, ELSEWHERE = 4 * MIB, 0x210000000, 0x220000000, 0x230000000
# So that the card is at work for most of the time.
TIMES, PATIENCE_S, NOBODY = 16, 60.0, 0xFFFFFFFF
HOST_SUBCHANNEL, COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL, SEM_ADDR_LO, RELEASE = 0, 1, 4, 0x5C, 1
# Compute's own, of data among its methods.
INLINE_LENGTH, INLINE_LAUNCH, INLINE_DATA, PITCH = 0x180, 0x1B0, 0x1B4, 1
OFFSET_IN, LINE_LENGTH_IN, LAUNCH_DMA = 0x400, 0x418, 0x300
# Not pipelined, both ends in pitch layouts.
PLAIN = 2 | 1 << 7 | 1 << 8


def methods(subchannel: int, method: int, *data: int) -> bytes:
    head = 1 << 29 | len(data) << 16 | subchannel << 13 | method >> 2
    return struct.pack(f"<{1 + len(data)}I", head, *data)


def halves(address: int) -> tuple[int, int]:
    return address >> 32, address & 0xFFFFFFFF


def copy(to: int, source: int) -> bytes:
    return (
        methods(COPY_SUBCHANNEL, OFFSET_IN, *halves(source), *halves(to), PIECE, PIECE)
        + methods(COPY_SUBCHANNEL, LINE_LENGTH_IN, PIECE, 1)
        + methods(COPY_SUBCHANNEL, LAUNCH_DMA, PLAIN)
    )


def word(to: int, value: int) -> bytes:
    """Of 32 bits, written by compute."""
    return (
        methods(COMPUTE_SUBCHANNEL, INLINE_LENGTH, 4, 1, *halves(to))
        + methods(COMPUTE_SUBCHANNEL, INLINE_LAUNCH, PITCH)
        + methods(COMPUTE_SUBCHANNEL, INLINE_DATA, value)
    )


class Copies:
    def __init__(self, client: Client) -> None:
        self.work, self.put = Working(client), 0
        assert self.work.register() == 0
        assert self.work.schedule(True) == 0
        client.must_alloc(self.work.channel, client.class_like(COPY_KIND))
        self.area, _ = mapped(client, self.work.area, of_card(client), 2 * MIB)
        registers = client.must_alloc(SUBDEVICE, client.class_like(USERMODE_KIND))
        self.registers, _ = mapped(client, registers, of_card(client), REGISTERS_BYTES, mmap.PROT_WRITE)
        asked = client.control(self.work.channel, NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, bytes(4))
        assert asked[0] == 0, asked
        self.token = asked[1]
        hosts = client.memory(PIECE, rm.MEMORY_HOST, attr=HOST)
        self.view, _ = mapped(client, hosts, rm.node("nvidiactl"), PIECE)
        self._reach(hosts, HOSTS)
        for address in (THERE, ELSEWHERE):
            self._reach(client.memory(PIECE), address)
        self.data = os.urandom(PIECE)
        self.view[:] = self.data
        assert self.do(copy(THERE, HOSTS))

    def _reach(self, handle: int, address: int) -> None:
        assert self.work.on.uvm.create_range(address, PIECE) == 0
        assert self.work.on.map(handle, address, PIECE) == 0

    def do(self, commands: bytes) -> bool:
        """Returns once the card has done it, or is off its bus: then all of it reads as ones."""
        self.put += 1
        slot = self.put % ENTRIES
        words = commands + methods(
            HOST_SUBCHANNEL, SEM_ADDR_LO, *reversed(halves(BASE + SEMAPHORE_AT)), self.put, 0, RELEASE
        )
        at = WORDS_AT + slot * WORDS_BYTES
        assert len(words) <= WORDS_BYTES
        self.area[at : at + len(words)] = words
        struct.pack_into("<Q", self.area, (slot - 1) % ENTRIES * 8, BASE + at | len(words) // 4 << 42)
        struct.pack_into("<I", self.area, GP_PUT, slot)
        self.registers[DOORBELL : DOORBELL + 4] = self.token
        end = time.monotonic() + PATIENCE_S
        while (done := struct.unpack_from("<I", self.area, SEMAPHORE_AT)[0]) != self.put:
            if done == NOBODY:
                return False
            assert time.monotonic() < end, f"entry {self.put} is not done"
            time.sleep(0.001)
        return True

    def intact(self) -> bool:
        """What the card has had since the beginning."""
        self.view[:] = bytes(PIECE)
        done = self.do(copy(ELSEWHERE, THERE) * TIMES + copy(HOSTS, ELSEWHERE))
        return done and self.view[:] == self.data

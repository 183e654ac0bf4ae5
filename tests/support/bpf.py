"""An interpreter for the classic BPF programs that libseccomp makes, over one struct seccomp_data."""

from __future__ import annotations

import struct
from collections.abc import Sequence

# The kernel's instruction: code, jump if true, jump if false, operand.
Instruction = tuple[int, int, int, int]

LD_W_ABS = 0x20
ALU_AND_K = 0x54
RET_K = 0x06
JMP_JA = 0x05
JMP_JEQ_K = 0x15
JMP_JGT_K = 0x25
JMP_JGE_K = 0x35
JMP_JSET_K = 0x45


def load(program: bytes) -> list[Instruction]:
    return list(struct.iter_unpack("<HBBI", program))


def run(program: Sequence[Instruction], nr: int, arch: int, args: Sequence[int]) -> int:
    """The 32-bit verdict of the filter for a system call. nr may be given unsigned; args are six 64-bit
    numbers.
    """
    data = struct.pack("<IIQ6Q", nr & 0xFFFFFFFF, arch, 0, *args)
    accumulator = 0
    at = 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == LD_W_ABS:
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif code == ALU_AND_K:
            accumulator &= operand
        elif code == RET_K:
            return operand
        elif code == JMP_JA:
            at += operand
        elif code == JMP_JEQ_K:
            at += if_true if accumulator == operand else if_false
        elif code == JMP_JGT_K:
            at += if_true if accumulator > operand else if_false
        elif code == JMP_JGE_K:
            at += if_true if accumulator >= operand else if_false
        elif code == JMP_JSET_K:
            at += if_true if accumulator & operand else if_false
        else:
            raise ValueError(f"instruction {code:#x} at {at - 1}")

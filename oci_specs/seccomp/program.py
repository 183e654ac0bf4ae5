"""Filters as the kernel has them: the classic BPF programs that libseccomp makes, and what they let through.

A container that is restored from a checkpoint has the program that was in it. Whether that is one that mgpu
wrote, and of a version that knows today's calls, its verdicts tell.
"""

import struct
from collections.abc import Iterator, Sequence

from oci_specs.seccomp.mmap_rules import READ, SHARED, WRITE
from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES

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

X86_64, X86 = 0xC000003E, 0x40000003
X32_BIT = 0x40000000
# The verdicts by which the call is made: SECCOMP_RET_TRACE, LOG and ALLOW. The kernel treats an unknown
# verdict as a kill.
_ACTION, _TRACE, _KILL_PROCESS = 0xFFFF0000, 0x7FF00000, 0x80000000
_CALLS_OF_ABIS = {
    # ioctl, mmap or mmap2, io_uring_setup, remap_file_pages
    "x86-64": (X86_64, 16, 9, 425, 216),
    "x32": (X86_64, 514 | X32_BIT, 9 | X32_BIT, 425 | X32_BIT, 216 | X32_BIT),
    "i386": (X86, 54, 192, 425, 257),
}


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


def _calls() -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
    """Calls that a filter of mgpu's hands over or refuses: what each is, its ABI, number and arguments."""
    for abi, (arch, ioctl, mmap, io_uring_setup, remap_file_pages) in _CALLS_OF_ABIS.items():
        for mask, datum in (*NOTIFY_CUBES, *REFUSED_CUBES):
            for ignored in (0, ~mask & 0xFFFFFFFF):
                command = datum | ignored
                yield f"ioctl {command:#x} of {abi}", arch, ioctl, (3, command, 0, 0, 0, 0)
        for protection in (WRITE, READ | WRITE):
            offset = 1 if protection & READ else 0
            if offset or abi != "i386":
                yield f"mmap of {abi}", arch, mmap, (0, 4096, protection, SHARED, 3, offset)
        yield f"io_uring_setup of {abi}", arch, io_uring_setup, (1, 0, 0, 0, 0, 0)
        yield f"remap_file_pages of {abi}", arch, remap_file_pages, (0, 0, 0, 0, 0, 0)


def lets_through(code: bytes) -> str | None:
    """The first of mgpu's calls that the program lets through; None where it is a filter for mgpu.

    ValueError for a program that libseccomp does not make.
    """
    try:
        program = load(code)
        for name, arch, nr, args in _calls():
            if _TRACE <= run(program, nr, arch, args) & _ACTION < _KILL_PROCESS:
                return name
    except (struct.error, IndexError) as error:
        raise ValueError("it is cut off") from error
    return None

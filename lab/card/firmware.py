"""A firmware file for the driver's request_firmware(), of our own and without code: an ELF file with the
sections that kernel_gsp.c looks for. The emulated GSP runs nothing, and nobody verifies a signature.

    python3 lab/card/firmware.py 550.163.01 gsp_ga10x.bin
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

IMAGE_BYTES, SIGNATURE_BYTES = 0x10000, 4096
CHIPS = ("tu10x", "tu11x", "ga100", "ga10x", "ad10x", "gh100")
ELF64_RISCV = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
NAMES, PROGBITS, STRTAB, RISCV, EXECUTABLE = ".shstrtab", 1, 3, 243, 1


def elf(sections: dict[str, bytes]) -> bytes:
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, NAMES))
    body, headers = b"", [bytes(SECTION.size)]
    for name, data in {**sections, NAMES: names}.items():
        kind = STRTAB if name == NAMES else PROGBITS
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(SECTION.pack(at, kind, 0, 0, ELF64_RISCV.size + len(body), len(data), 0, 0, 8, 0))
        body += data + bytes(-len(data) % 16)
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    counts = (ELF64_RISCV.size, 0, 0, SECTION.size, len(headers), len(headers) - 1)
    head = ELF64_RISCV.pack(ident, EXECUTABLE, RISCV, 1, 0, 0, ELF64_RISCV.size + len(body), 0, *counts)
    return head + body + b"".join(headers)


def firmware(version: str) -> bytes:
    sections = {".fwversion": version.encode() + b"\0", ".fwimage": bytes(IMAGE_BYTES)}
    return elf(sections | {f".fwsignature_{chip}": bytes(SIGNATURE_BYTES) for chip in CHIPS})


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(firmware(sys.argv[1]))

"""The GSP's firmware file for nvidia.ko (kernel_gsp.c): the sections that it reads, and no code."""

import struct

IMAGE_BYTES = 0x10000
SIGNATURE_BYTES = 4096
# An ELF note without an identity: 580 and later do not start without it.
BUILD_ID = struct.pack("<III4s20s", 4, 20, 3, b"GNU", b"")
SIGNED_FOR = ("tu10x", "tu11x", "ga100", "ga10x", "ad10x", "gh100")
# The file for chips up to Turing, and that for later ones.
NAMES = ("gsp_tu10x.bin", "gsp_ga10x.bin")

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGBITS, _STRTAB = 1, 3
_RISCV = 243


def made(version: str) -> bytes:
    sections = {".fwversion": version.encode() + b"\0", ".fwimage": bytes(IMAGE_BYTES)}
    sections[".note.gnu.build-id"] = BUILD_ID
    sections |= {f".fwsignature_{chip}": bytes(SIGNATURE_BYTES) for chip in SIGNED_FOR}
    return _elf(sections)


def _elf(sections: dict[str, bytes]) -> bytes:
    names, body = b"\0", b""
    headers = [_SECTION.pack(*[0] * 10)]
    for name in (*sections, ".shstrtab"):
        at = len(names)
        names += name.encode() + b"\0"
        held = sections.get(name, names)
        place = _HEADER.size + len(body)
        kind = _PROGBITS if name in sections else _STRTAB
        headers.append(_SECTION.pack(at, kind, 0, 0, place, len(held), 0, 0, 8, 0))
        body += held + bytes(-len(held) % 16)
    ident = b"\x7fELF\2\1\1" + bytes(9)
    table = _HEADER.size + len(body)
    header = _HEADER.pack(
        ident,
        1,
        _RISCV,
        1,
        0,
        0,
        table,
        0,
        _HEADER.size,
        0,
        0,
        _SECTION.size,
        len(headers),
        len(headers) - 1,
    )
    return header + body + b"".join(headers)

"""Writes the derived form of a recording with parameters: `derive_nvdiff.py RECORDING.jsonl FACTS >
libcuda-580.159.04.tsv`.

RECORDING: one ioctl() a line, as reindertpelsma/nvkvm-old records them: the struct, and what its pointer to
parameters leads to, before and after the call in hex. FACTS as for derive.py, with uvm.tsv and escape.tsv.
Calls of open() are not in it: they are put before the calls that show them, with numbers after the last
call's. See tests/recordings/README.md.
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.recordings.derive import FIRST_HANDLE, LAST_HANDLE, LINEAR_AT, Derived, Row, class_bytes, version
from tests.support import rm_numbers as nv
from tests.support.tsv import read

# The newest of the branch that the facts have.
VERSION = (580, 142)
RM_ALLOC, RM_CONTROL = "NV_ESC_RM_ALLOC", "NV_ESC_RM_CONTROL"
# What is kept of parameters and answers.
KEPT_BYTES = 96
# The recorded machine's only card, and where parameters name it.
GPU_ID = 7
GPU_ID_AT = {
    0x13A: {8},
    0x201: {0},
    0x202: {0, 0x1C},
    0x205: {0, 0x14},
    0x214: {0},
    0x215: {0},
    0x288: {4},
}
# Addresses of the program: its stack, and what it maps.
OWN_ADDRESSES = ((0x74E0_0000_0000, 0x74F0_0000_0000), (0x7FF0_0000_0000, 0x8000_0000_0000))


def word_at(data: bytes, at: int = 0) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def double_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def symbols(facts: Path) -> dict[str, dict[int, tuple[str, int]]]:
    """By node's kind and number: the name, and the bytes of the struct."""
    found: dict[str, dict[int, tuple[str, int]]] = {}
    for kind in ("uvm", "escape"):
        found[kind] = {
            int(row["number"], 16): (row["symbol"], int(row["bytes"]) if row["bytes"].isdecimal() else 0)
            for row in read(facts / f"{kind}.tsv")
            if row["number"] != "-"
            and version(row["since"]) <= VERSION
            and (row["last"] == "-" or version(row["last"]) >= VERSION)
        }
    return found


class Opened:
    """The recording as derive.py takes it, with the open() calls that it shows."""

    def __init__(self, recorded: list[Row], facts: Path) -> None:
        self.recorded, self.symbols = recorded, symbols(facts)
        self.next_row = recorded[-1]["i"] + 1
        self.unnamed = 1000  # descriptors of which no call tells the number
        self.classes: dict[int, int] = {}
        self.control = self.managed = self.first_card = self.card = -1

    def rows(self) -> Iterator[Row]:
        for i, row in enumerate(self.recorded):
            if row["t"] != "ioctl":
                continue
            made = self.decoded(row)
            yield from self.opens(i, made)
            yield made

    def decoded(self, row: Row) -> Row:
        uvm = row["dev"] == "nvidia-uvm"
        request = int(row["req"], 16)
        number = request if uvm else row["nr"]
        symbol, bytes_ = self.symbols["uvm" if uvm else "escape"][number]
        # Some structs are recorded to 8192 bytes.
        whole = not uvm or len(row["hpre"]) // 2 >= bytes_
        before = bytes.fromhex(row["hpre"])
        words = struct.unpack_from(f"<{len(before) // 4}I", before)
        made = {
            "call": "ioctl",
            "index": row["i"],
            "request": row["req"],
            "node": row["dev"],
            "symbol": symbol,
            "before": row["hpre"],
            "after": row["hpost"],
            "bytes": len(before),
            "params_bytes": bytes_ if uvm else row["iocsize"],
            "size": row["iocsize"],
            "status": True if whole else None,
            "result": row["rc"],
            "params_size": row.get("psize", 0),
            "params": (row.get("ppre", ""), row.get("ppost", "")),
        }
        if symbol in (RM_ALLOC, RM_CONTROL):
            made["params_pointer"] = hex(double_at(before, 0x10))
            made["control"] = hex(words[2])
        if symbol == RM_ALLOC:
            made["class"] = hex(words[3])
            made["handle"] = hex(word_at(bytes.fromhex(row["hpost"]), 8))
            self.classes[words[2]] = words[3]
        elif symbol == "NV_ESC_RM_MAP_MEMORY":
            made["memory"] = hex(words[2])
            made["linear_after"] = hex(double_at(bytes.fromhex(row["hpost"]), 0x20))
        return made

    def opens(self, i: int, row: Row) -> Iterator[Row]:
        """Those before a row; the row gets the file that it is made on."""
        symbol, words = row["symbol"], bytes.fromhex(row["before"])
        if symbol == "NV_ESC_SYS_PARAMS":
            self.control = self.register_file(i)
            yield self.open("nvidiactl", self.control)
        elif symbol == "UVM_INITIALIZE":
            self.managed = word_at(bytes.fromhex(self.recorded[i + 1]["hpre"]))
            yield self.open("nvidia-uvm", self.managed)
        elif symbol == "UVM_MM_INITIALIZE":
            yield self.open("nvidia-uvm", self.managed + 1)
        elif symbol == "NV_ESC_REGISTER_FD":
            self.card = self.event_file(i)
            yield self.open("nvidia0", self.card)
            if self.first_card < 0:
                self.first_card = self.card
        elif symbol == "NV_ESC_RM_MAP_MEMORY":
            on_card = self.classes[int(row["memory"], 16)] in (
                nv.TURING_USERMODE_A,
                nv.NV01_MEMORY_LOCAL_USER,
            )
            yield self.open("nvidia0" if on_card else "nvidiactl", word_at(words, 0x30))
        row["fd"] = {
            "nvidiactl": self.control,
            "nvidia-uvm": self.managed + (symbol == "UVM_MM_INITIALIZE"),
            "nvidia0": self.card,
        }[row["node"]]
        if symbol == "NV_ESC_RM_ALLOC_MEMORY":
            row["fd"] = self.first_card
        elif symbol == "NV_ESC_FREE_OS_EVENT":
            row["fd"] = word_at(words, 8)

    def open(self, node: str, fd: int) -> Row:
        self.next_row += 1
        return {"call": "open", "index": self.next_row - 1, "node": node, "fd": fd, "result": fd}

    def register_file(self, i: int) -> int:
        """The descriptor of the control node, which the first REGISTER_FD names."""
        later = next(row for row in self.recorded[i:] if row["nr"] == nv.NV_ESC_REGISTER_FD)
        return word_at(bytes.fromhex(later["hpre"]))

    def event_file(self, i: int) -> int:
        """What is registered becomes an event's file, or nothing names it."""
        later = self.recorded[i + 1]
        if later["nr"] == nv.NV_ESC_ALLOC_OS_EVENT:
            return word_at(bytes.fromhex(later["hpre"]), 8)
        self.unnamed += 1
        return self.unnamed


class WithParams(Derived):
    """Two columns more: the parameters, and what the driver made of them, or of a struct that has none."""

    asked_bytes = KEPT_BYTES
    gpu_id = GPU_ID
    own_addresses: tuple[tuple[int, int], ...] = OWN_ADDRESSES
    answers_of_classes = False

    def asked(self, row: Row) -> list[str]:
        fields = super().asked(row)
        number = int(row.get("class" if row["symbol"] == RM_ALLOC else "control", "0"), 16)
        before, after = (bytes.fromhex(text) for text in row["params"])
        params = self.named(number, before[: self.asked_bytes])
        if not row["params_size"]:
            before, after = (bytes.fromhex(row[when]) for when in ("before", "after"))
        before, after = before[:KEPT_BYTES], after[:KEPT_BYTES]
        answer = "=" if before == after else self.named(number, after)
        of_a_class = row["symbol"] == RM_ALLOC and not (self.answers_of_classes and row["params_size"])
        if of_a_class or row["symbol"] in (*LINEAR_AT, "NV_ESC_RM_MAP_MEMORY"):
            answer = "="  # what differs is the status, or has a relation already
        return [*fields, params, answer]

    def named(self, number: int, data: bytes) -> str:
        data = data.ljust(-(-len(data) // 4) * 4, b"\0")
        found: list[str] = []
        at = 0
        while at < len(data):
            word = word_at(data, at)
            double = double_at(data, at) if at % 8 == 0 and at + 8 <= len(data) else 0
            said, bytes_ = self.at(number, at, word), 4
            if any(first <= double < last for first, last in self.own_addresses):
                said, bytes_ = "Z", 8
            elif data[at : at + 16] in self.uuids and at + 16 <= len(data):
                said, bytes_ = self.uuids[data[at : at + 16]], 16
            if said:
                found.append(f"{at:x}:{said}")
            at += bytes_
        return " ".join(found) or "-"

    def at(self, number: int, at: int, word: int) -> str:
        """Of the parameters of a class or control."""
        if at in GPU_ID_AT.get(number, ()) and word == self.gpu_id:
            return "g0"
        if word in self.clients:
            return self.clients[word]
        if FIRST_HANDLE < word <= LAST_HANDLE:
            return f"h{word - FIRST_HANDLE}"
        return f"{word:#x}" if word else ""


def main(recording: Path, facts: Path) -> None:
    recorded = [json.loads(line) for line in recording.read_text().splitlines()]
    derived = WithParams(class_bytes(facts, VERSION))
    for row in recorded:
        if row["dev"] == "nvidia-uvm" and row["nr"] == nv.UVM_REGISTER_GPU:
            derived.uuids[bytes.fromhex(row["hpre"])[:16]] = "u0"
    print("\t".join(["row", "request", "file", "call", "words", "bytes", "expected", "params", "answer"]))
    for fields in derived.rows(list(Opened(recorded, facts).rows())):
        print("\t".join([*fields, "-", "-"][:9]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

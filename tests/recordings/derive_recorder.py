"""Writes the derived form of what a program asked on a card of ours:
`derive_recorder.py RECORDING.jsonl FACTS > libcuda-580.159.04-h200.tsv`.

RECORDING: one call a line, as a library that is loaded before NVIDIA's writes it: open, close, mmap, and
ioctl with the struct before ("i") and after ("o", where it changed), and what its pointer to parameters leads
to ("p", "q", of "pn" bytes), in hex without the zeros at the end. FACTS as for derive_nvdiff.py.
See tests/recordings/README.md.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.recordings.derive import Row, class_bytes
from tests.recordings.derive_nvdiff import (
    RM_ALLOC,
    RM_CONTROL,
    VERSION,
    WithParams,
    double_at,
    symbols,
    word_at,
)
from tests.support import rm_numbers as nv

GPU_ID = 6
# Where an event's parameters name the file that it wakes.
PARAMS_FILE_AT = {nv.NV01_EVENT_OS_EVENT: 0x10}
# Addresses of the program: what it maps, and its stack. The kernel's is told of an event.
OWN_ADDRESSES = ((0x7FA0_0000_0000, 0x8000_0000_0000), (0xFFFF_8000_0000_0000, 0xFFFF_FFFF_0000_0000))
# How much was recorded of nvidia-uvm's structs.
RECORDED_BYTES = {nv.UVM_MAP_EXTERNAL_ALLOCATION: 8192}
OTHER_UVM_BYTES = 2048


def shots(row: Row, first: str, second: str, bytes_: int) -> list[bytes]:
    """Before and after the call; the second was recorded where it is another."""
    before: str = row.get(first, "")
    texts: list[str] = [before, row.get(second, before)]
    return [bytes.fromhex(text)[:bytes_].ljust(bytes_, b"\0") for text in texts]


class Recorder:
    """The recording as derive_nvdiff.py takes it."""

    def __init__(self, recorded: list[Row], facts: Path, sizes: dict[int, int]) -> None:
        self.recorded, self.sizes, self.symbols = recorded, sizes, symbols(facts)

    def rows(self) -> Iterator[Row]:
        for row in self.recorded:
            if "c" in row:
                yield self.asked(row)
                continue
            call = next((call for call in ("open", "close", "mmap") if call in row), None)
            node = row[call].removeprefix("/dev/") if call else ""
            if call and node.startswith("nvidia"):
                result = -row["e"] if row["e"] else row["fd"]
                # Of mmap(): bytes, offset, address.
                of = (row["a"], row["b"], row["r"])
                yield {
                    "call": call,
                    "index": row["s"],
                    "node": node,
                    "fd": row["fd"],
                    "result": result,
                    "of": of,
                }

    def asked(self, row: Row) -> Row:
        uvm = row["f"] == "nvidia-uvm"
        command = int(row["c"], 16)
        symbol, bytes_ = self.symbols["uvm" if uvm else "escape"][command if uvm else command & 0xFF]
        kept = min(bytes_, RECORDED_BYTES.get(command, OTHER_UVM_BYTES)) if uvm else command >> 16 & 0x3FFF
        before, after = shots(row, "i", "o", kept)
        made = {
            "call": "ioctl",
            "index": row["s"],
            "fd": row["fd"],
            "request": row["c"],
            "node": row["f"],
            "symbol": symbol,
            "before": before.hex(),
            "after": after.hex(),
            "bytes": kept,
            "params_bytes": bytes_ if uvm else kept,
            "size": kept,
            "status": True if not uvm or kept == bytes_ else None,
            "result": row["r"],
            "params_size": 0,
            "params": ("", ""),
        }
        if symbol in (RM_ALLOC, RM_CONTROL):
            pointer = double_at(before, 0x10)
            made["params_pointer"] = hex(pointer)
            made["control"] = hex(word_at(before, 8))
            made["class"] = hex(word_at(before, 0xC))
            made["handle"] = hex(word_at(after, 8))
            # Of a class's parameters no call says the size; more was recorded.
            size = self.sizes.get(word_at(before, 0xC), 0) if symbol == RM_ALLOC else row.get("pn", 0)
            made["params_size"] = size if pointer else 0
            made["params"] = tuple(shot.hex() for shot in shots(row, "p", "q", size))
        elif symbol == "NV_ESC_RM_MAP_MEMORY":
            made["memory"] = hex(word_at(before, 8))
            made["linear_after"] = hex(double_at(after, 0x20))
        return made


class Whole(WithParams):
    """Parameters of classes too, and close() and mmap() where they were made."""

    asked_bytes = 1 << 16
    gpu_id = GPU_ID
    own_addresses = OWN_ADDRESSES
    answers_of_classes = True

    def rows(self, recorded: list[Row]) -> Iterator[list[str]]:
        for row in recorded:
            if row["call"] == "open":
                yield self.opened(row)
            elif row["call"] == "ioctl":
                yield self.asked(row)
            elif row["call"] == "close" and row["fd"] in self.file_of:
                # What dup() gave is closed too; no call is made on it.
                yield [
                    str(row["index"]),
                    "close",
                    f"f{self.file_of.pop(row['fd'])}",
                    row["node"],
                    "-",
                    "-",
                    "-",
                ]
            elif row["call"] == "mmap" and row["node"] == "nvidia-uvm":
                # What MAP_MEMORY made is mapped after it, without a row.
                bytes_, _, address = row["of"]
                yield [
                    str(row["index"]),
                    "mmap",
                    f"f{self.file_of[row['fd']]}",
                    row["node"],
                    address,
                    bytes_,
                    "-",
                ]

    def at(self, number: int, at: int, word: int) -> str:
        if PARAMS_FILE_AT.get(number) == at and word in self.file_of:
            return f"f{self.file_of[word]}"
        return super().at(number, at, word)


def main(recording: Path, facts: Path) -> None:
    recorded = [json.loads(line) for line in recording.read_text().splitlines()]
    sizes = class_bytes(facts, VERSION)
    derived = Whole(sizes)
    for row in recorded:
        if row.get("f") == "nvidia-uvm" and int(row["c"], 16) == nv.UVM_REGISTER_GPU:
            derived.uuids[bytes.fromhex(row["i"])[:16]] = "u0"
    print("\t".join(["row", "request", "file", "call", "words", "bytes", "expected", "params", "answer"]))
    for fields in derived.rows(list(Recorder(recorded, facts, sizes).rows())):
        print("\t".join([*fields, "-", "-"][:9]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

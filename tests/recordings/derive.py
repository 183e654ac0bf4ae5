"""Writes the derived form of a recorded program: `derive.py RECORDING.jsonl FACTS > libcuda-555.42.02.tsv`.

RECORDING: one call of open() or ioctl() a line, as pulak999/ioctl-cuda-mapping records them, decoded (the
struct before and after the call in hex, and what its fields are called). FACTS: a folder with class.tsv of
the driver's facts. The derived form has no bytes but those that say what is asked: words of the struct that
are not zero, and in place of what differs in every run a relation. See tests/recordings/README.md.
"""

import csv
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]

VERSION = (555, 42, 2)
FIRST_HANDLE, LAST_HANDLE = 0x5C000000, 0x5C00FFFF
# Where a struct has a descriptor, and where its status: offsets of nv-ioctl.h, nvos.h, uvm_ioctl.h.
DESCRIPTOR_AT = {
    "NV_ESC_REGISTER_FD": 0,
    "NV_ESC_ALLOC_OS_EVENT": 8,
    "NV_ESC_FREE_OS_EVENT": 8,
    "NV_ESC_RM_MAP_MEMORY": 0x30,
    "UVM_MM_INITIALIZE": 0,
    "UVM_REGISTER_GPU_VASPACE": 0x10,
    "UVM_REGISTER_CHANNEL": 0x10,
}
STATUS_AT = {
    "NV_ESC_RM_ALLOC_MEMORY": 0x28,
    "NV_ESC_RM_FREE": 0xC,
    "NV_ESC_RM_CONTROL": 0x1C,
    "NV_ESC_RM_MAP_MEMORY": 0x28,
    "NV_ESC_RM_UNMAP_MEMORY": 0x18,
    "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO": 0x20,
    "NV_ESC_ALLOC_OS_EVENT": 0xC,
    "NV_ESC_FREE_OS_EVENT": 0xC,
}
# NVOS21 and NVOS64; and where the pointer to parameters is.
ALLOC_STATUS_AT = {32: 0x1C, 48: 0x28}
PARAMS_AT = {"NV_ESC_RM_ALLOC": 0x10, "NV_ESC_RM_CONTROL": 0x10}
# The others' is their last word.
UVM_STATUS_AT = {
    "UVM_INITIALIZE": 8,
    "UVM_CREATE_EXTERNAL_RANGE": 0x10,
    "UVM_CREATE_RANGE_GROUP": 8,
    "UVM_DESTROY_RANGE_GROUP": 8,
    "UVM_FREE": 0x10,
    "UVM_MAP_DYNAMIC_PARALLELISM_REGION": 0x20,
    "UVM_REGISTER_CHANNEL": 0x30,
    "UVM_VALIDATE_VA_RANGE": 0x10,
}
LINEAR_AT = {"NV_ESC_RM_UNMAP_MEMORY": 0x10, "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO": 0x10}
OWN_MEMORY_AT = 0x18


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def class_bytes(facts: Path, at: tuple[int, ...] = VERSION) -> dict[int, int]:
    """Parameters of each class in a version."""
    found: dict[int, int] = {}
    with (facts / "class.tsv").open() as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            since, last = (None if text == "-" else version(text) for text in (row["since"], row["last"]))
            if since is not None and since <= at and (last is None or last >= at):
                bytes_ = 0 if row["bytes"] == "-" else int(row["bytes"])
                number = int(row["number"], 16)
                found[number] = max(found.get(number, 0), bytes_)
    return found


def status_at(row: Row) -> int | None:
    """None: it has none, or was not recorded to its end."""
    if row["node"] == "nvidia-uvm":
        return None if row.get("status") is None else UVM_STATUS_AT.get(row["symbol"], row["bytes"] - 4)
    if row["symbol"] == "NV_ESC_RM_ALLOC":
        return ALLOC_STATUS_AT[row["size"]]
    return STATUS_AT.get(row["symbol"])


class Derived:
    """The rows, and the relations that they have had so far."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self.file_of: dict[int, int] = {}  # by descriptor: the row that opened it
        self.clients: dict[int, str] = {}
        self.linear: dict[int, str] = {}
        self.uuids: dict[bytes, str] = {}

    def rows(self, recorded: list[Row]) -> Iterator[list[str]]:
        for row in recorded:
            yield self.opened(row) if row["call"] == "open" else self.asked(row)

    def opened(self, row: Row) -> list[str]:
        if row["result"] < 0:
            return [str(row["index"]), "open", "-", row["node"], "-", "-", f"errno={-row['result']}"]
        before = self.file_of.get(row["fd"])
        self.file_of[row["fd"]] = row["index"]
        # close() was not recorded: the number had been given back before it was given out again.
        closed = "-" if before is None else f"closes=f{before}"
        return [str(row["index"]), "open", "-", row["node"], closed, "-", "-"]

    def asked(self, row: Row) -> list[str]:
        asks = self.words(row)
        at = status_at(row)
        after = bytes.fromhex(row["after"])
        expected = "-" if at is None else f"{at:x}={struct.unpack_from('<I', after, at)[0]:#x}"
        if row["result"]:
            sys.exit(f"row {row['index']}: ioctl() failed with {row['result']}")
        if row["symbol"] == "NV_ESC_RM_ALLOC" and row["class"] in ("0x0", "0x1", "0x41"):
            self.clients.setdefault(int(row["handle"], 16), f"c{len(self.clients) + 1}")
        if row["symbol"] == "NV_ESC_RM_MAP_MEMORY":
            self.linear[int(row["linear_after"], 16)] = f"L{int(row['memory'], 16) - FIRST_HANDLE}"
        name = row["symbol"]
        if row["symbol"] == "NV_ESC_RM_ALLOC":
            name += f" {row['class']}"
        elif row["symbol"] == "NV_ESC_RM_CONTROL":
            name += f" {row['control']}"
        file = f"f{self.file_of[row['fd']]}"
        return [
            str(row["index"]),
            f"{int(row['request'], 16):#x}",
            file,
            name,
            asks,
            self.sizes_of(row),
            expected,
        ]

    def sizes_of(self, row: Row) -> str:
        """Of the struct, and of what it points to."""
        params = 0
        if row["symbol"] == "NV_ESC_RM_CONTROL":
            params = row["params_size"]
        elif row["symbol"] == "NV_ESC_RM_ALLOC" and int(row["params_pointer"], 16):
            params = self.sizes[int(row["class"], 16)]
        return (
            f"{row.get('params_bytes', row['bytes'])} {params}"
            if params
            else f"{row.get('params_bytes', row['bytes'])}"
        )

    def words(self, row: Row) -> str:
        data = bytes.fromhex(row["before"])[: -(row["bytes"] % 4) or None]
        name = row["symbol"]
        found: list[str] = []
        at = 0
        while at + 4 <= len(data):
            word = struct.unpack_from("<I", data, at)[0]
            double = struct.unpack_from("<Q", data, at)[0] if at + 8 <= len(data) else 0
            said, bytes_ = self.one(row, name, at, word, double, data[at : at + 16])
            if said:
                found.append(f"{at:x}:{said}")
            at += bytes_
        return " ".join(found) or "-"

    def one(self, row: Row, name: str, at: int, word: int, double: int, uuid: bytes) -> tuple[str, int]:
        """What stands there, and how many bytes that are."""
        if PARAMS_AT.get(name) == at:
            return ("P" if double else ""), 8
        if name == "NV_ESC_RM_ALLOC_MEMORY" and at == OWN_MEMORY_AT:
            return "M", 8
        if LINEAR_AT.get(name) == at:
            return self.linear.get(double, f"{double:#x}*8"), 8
        if DESCRIPTOR_AT.get(name) == at:
            return f"f{self.file_of[word]}", 4
        if row["node"] == "nvidia-uvm" and len(uuid) == 16 and self.is_uuid(name, at, uuid):
            return self.uuids.setdefault(uuid, f"u{len(self.uuids)}"), 16
        if word in self.clients:
            return self.clients[word], 4
        if FIRST_HANDLE < word <= LAST_HANDLE:
            return f"h{word - FIRST_HANDLE}", 4
        return (f"{word:#x}" if word else ""), 4

    def is_uuid(self, name: str, at: int, data: bytes) -> bool:
        """UVM_REGISTER_GPU begins with that of a card; the same bytes are it elsewhere too."""
        return data in self.uuids or (name == "UVM_REGISTER_GPU" and at == 0)


def main(recording: Path, facts: Path) -> None:
    recorded = [json.loads(line) for line in recording.read_text().splitlines()]
    print("\t".join(["row", "request", "file", "call", "words", "bytes", "expected"]))
    for row in Derived(class_bytes(facts)).rows(recorded):
        print("\t".join(row))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

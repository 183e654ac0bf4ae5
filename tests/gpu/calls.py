"""What the kit's recorder (record.c) wrote down: which calls of programs failed, and what took long."""

import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu import rm
from tests.gpu.backend import PROGRAMS, driver_version
from tests.support import rm_interface, rm_numbers, tsv

RECORDER = PROGRAMS / "record.so"
# A container's own.
INSIDE = "/tmp/calls"
Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """name: its kind, number and NVIDIA's name. failed: how, by status or errno; empty where it did not."""

    name: str
    failed: str
    us: float

    def __str__(self) -> str:
        return f"{self.name}: {self.failed}" if self.failed else self.name


def recording(folder: str | Path, *, at_once: bool = False) -> dict[str, str]:
    """The environment of a program that is recorded. at_once: it may make no files later on."""
    found = {"LD_PRELOAD": str(RECORDER), "RECORD_DIR": str(folder)}
    return found | {"RECORD_AT_ONCE": "1"} if at_once else found


def preloaded(argv: Sequence[str], folder: str) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in recording(folder).items()), *argv]


def told(argv: Sequence[str]) -> list[str]:
    """The command, recorded, in a container: its last line says which of its calls failed and took long."""
    env = " ".join(f"{name}={value}" for name, value in recording(INSIDE).items())
    show = f"PYTHONPATH={os.environ.get('PYTHONPATH', '')} {sys.executable} -P -m tests.gpu.calls {INSIDE}"
    return ["sh", "-c", f'mkdir {INSIDE}; env {env} "$@"; {show}', "sh", *argv]


class Recorded:
    """What is in a folder by now, which is found anew each time."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._read: dict[str, int] = {}

    def new(self) -> list[Call]:
        """Those that came since the last time."""
        found: list[Call] = []
        for file in sorted(self._folder().glob("*.jsonl")):
            text = file.read_text()
            # The last line may be half there.
            end = text.rfind("\n") + 1
            found += read(text[self._read.get(file.name, 0) : end].splitlines())
            self._read[file.name] = end
        return found

    def keep(self, to: Path, name: str) -> None:
        for file in self._folder().glob("*.jsonl"):
            shutil.copyfile(file, to / f"{name}-{file.name}")


def read(lines: Iterable[str]) -> list[Call]:
    rows = (json.loads(line) for line in lines)
    return [_call(row) for row in rows if "s" in row]


def failed(calls: Iterable[Call]) -> list[str]:
    """Each once, in their order."""
    return list(dict.fromkeys(str(one) for one in calls if one.failed))


def slowest(calls: Iterable[Call], most: int = 8) -> list[str]:
    ordered = sorted(calls, key=lambda one: -one.us)[:most]
    return [f"{one} {one.us:.0f} us" for one in ordered]


def _call(row: Json) -> Call:
    if "c" not in row:
        [kind] = {"open", "mmap", "close"} & row.keys()
        return Call(f"{kind} {row[kind]}", f"errno {row['e']}" if row["e"] else "", 0.0)
    command = int(row["c"], 0)
    before, after = bytes.fromhex(row["i"]), bytes.fromhex(str(row.get("o", row["i"])))
    if command >> 8 & 0xFF == ord("F"):
        name, at = _of_rm(command, before)
    else:
        name, at = f"uvm {command} {_symbols('uvm').get(command, '')}", _uvm_status().get(command)
    status = int.from_bytes(after[at : at + 4], "little") if at is not None else 0
    failed_as = f"status {status:#x} {_symbols('status').get(status, '')}" if status else ""
    return Call(name, f"errno {row['e']}" if row["e"] else failed_as, row["ns"] / 1000)


def _of_rm(command: int, outer: bytes) -> tuple[str, int | None]:
    number, size = command & 0xFF, command >> 16 & 0x3FFF
    if number in (rm.ALLOC, rm.CONTROL):
        kind, at = ("class", 12) if number == rm.ALLOC else ("control", 8)
        of = int.from_bytes(outer[at : at + 4], "little")
        return f"{kind} {of:#x} {_symbols(kind).get(of, '')}", 0x28 if size == 48 else 0x1C
    for row in _rows().escapes:
        if row.number == number and row.size in (size, None):
            return f"escape {number:#x} {row.name}", row.status_at
    return f"escape {number:#x}/{size}", None


@functools.cache
def _rows() -> rm_interface.Interface:
    return rm_interface.read()


@functools.cache
def _symbols(kind: str) -> dict[int, str]:
    return {int(row["number"], 16): row["symbol"] for row in tsv.read(rm_numbers.FACTS / f"{kind}.tsv")}


@functools.cache
def _uvm_status() -> dict[int, int]:
    """By the command: where its status lies, with this driver."""
    params = {row["params"]: int(row["number"], 16) for row in tsv.read(rm_numbers.FACTS / "uvm.tsv")}
    here, found = _version(driver_version() or "9999"), {}
    for row in tsv.read(rm_numbers.FACTS / "field.tsv"):
        if row["params"] in params and row["field"] == "rmStatus" and _version(row["since"]) <= here:
            found[params[row["params"]]] = int(row["offset"], 16)
    return found


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split("."))


if __name__ == "__main__":
    made = Recorded(lambda: Path(sys.argv[1])).new()
    print(json.dumps({"calls": len(made), "failed": failed(made), "slowest": slowest(made)}))

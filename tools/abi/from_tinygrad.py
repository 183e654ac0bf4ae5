"""Facts as tinygrad has them: its nv_* modules are generated from NVIDIA's headers, of which it includes
some.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.abi.measure import size
from tools.abi.problem import Problem
from tools.abi.release import NONE, WHOLE, Key, Release, Value

AUTOGEN = "tinygrad/runtime/autogen"
# Runs where tinygrad can be imported: of each name its number, of each struct its size, of each field its
# place.
_ASKED = """
import ctypes, importlib, json, re, sys
module = importlib.import_module(sys.argv[1])
asked = json.load(sys.stdin)

def number(name):
    value = getattr(module, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None

def struct(name):
    value, kinds = getattr(module, name, None), (ctypes.Structure, ctypes.Union, ctypes._SimpleCData)
    return value if isinstance(value, type) and issubclass(value, kinds) else None

def place(name, path):
    kind, at = struct(name), 0
    for word in re.findall(r"\\w+|\\[\\d+\\]", path):
        if kind is None:
            return None
        if word[0] == "[":
            kind = getattr(kind, "_type_", None)
            at += int(word[1:-1]) * ctypes.sizeof(kind)
            continue
        found = {field[0]: field[1:] for field in getattr(kind, "_real_fields_", ())}.get(word)
        if found is None or len(found) > 2:
            return None
        kind, at = found[0], at + found[1]
    return [at, ctypes.sizeof(kind)]

names = {name: number(name) for name in (asked["numbers"] or dir(module))}
sizes = {name: ctypes.sizeof(found) for name in dir(module) if (found := struct(name)) is not None}
fields = [place(*pair) for pair in asked["fields"]]
json.dump({"names": {k: v for k, v in names.items() if v is not None}, "sizes": sizes, "fields": fields,
           "statuses": sorted(getattr(module, "nv_status_codes", {}).values())}, sys.stdout)
"""


class Module:
    """One nv_* module of a tinygrad that is unpacked below `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        path = folder / AUTOGEN / f"{name}.py"
        if not path.is_file():
            raise Problem(
                f"{folder}: has no {AUTOGEN}/{name}.py: give a folder that pip install --target filled"
            )

    def release(self, version: str, like: Release) -> Release:
        """What it says of a driver, asked by the names that `like` has, a driver whose facts are complete."""
        fields = list(like.facts["field"])
        answer = self._ask([pair for pair in fields if pair[1] != WHOLE])
        places = iter(answer["fields"])
        found = Release(version, f"tinygrad {self.distribution()}, {self.name}.py", complete=False)
        facts, names, sizes = found.facts, answer["names"], answer["sizes"]
        for symbol in answer["statuses"]:
            facts["status"][(symbol,)] = (f"{names[symbol] & 0xFFFFFFFF:#x}",)
        for kind in ("class", "control", "uvm"):
            for (symbol,), (_, params, _) in (*like.facts[kind].items(), *_new(kind, names, sizes, like)):
                if symbol in names:
                    known = NONE if params == NONE else str(sizes.get(params, NONE))
                    facts[kind][(symbol,)] = (f"{names[symbol] & 0xFFFFFFFF:#x}", params, known)
        for (symbol, params), (_, theirs) in like.facts["escape"].items():
            if symbol in names:
                known = theirs if _is_same_array(params, sizes, like) else str(sizes.get(params, NONE))
                facts["escape"][(symbol, params)] = (f"{names[symbol]:#x}", known)
        for (expression,) in like.facts["constant"]:
            value = _evaluated(expression, names, sizes)
            if value is not None:
                facts["constant"][(expression,)] = (f"{value & 0xFFFFFFFF:#x}",)
        for struct, name in fields:
            if name == WHOLE:
                if struct in sizes:
                    facts["field"][(struct, name)] = (NONE, str(sizes[struct]))
            elif (place := next(places)) is not None:
                facts["field"][(struct, name)] = (f"{place[0]:#x}", str(place[1]))
        return found

    def distribution(self) -> str:
        for path in self.folder.glob("tinygrad-*.dist-info"):
            return path.name.removeprefix("tinygrad-").removesuffix(".dist-info")
        return "of an unknown version"

    def _ask(self, fields: list[Key]) -> Any:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ASKED, f"{AUTOGEN.replace('/', '.')}.{self.name}"],
            input=json.dumps({"numbers": [], "fields": fields}),
            env={"PYTHONPATH": str(self.folder), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Problem(
                f"{self.folder}: {self.name} cannot be imported: {done.stderr.strip().splitlines()[-1]}"
            )
        return json.loads(done.stdout)


def _new(
    kind: str, names: dict[str, int], sizes: dict[str, int], like: Release
) -> Iterator[tuple[Key, Value]]:
    """Commands that the older driver did not have, each with a struct of its name."""
    shapes = {"uvm": r"UVM_\w+", "control": r"NV\w+_CTRL_CMD_\w+"}
    for name in names:
        if kind in shapes and re.fullmatch(shapes[kind], name) and (name,) not in like.facts[kind]:
            struct = f"{name.replace('_CTRL_CMD_', '_CTRL_')}_PARAMS"
            if struct in sizes and "_INTERNAL_" not in name:
                yield (name,), (NONE, struct, NONE)


def _is_same_array(params: str, sizes: dict[str, int], like: Release) -> bool:
    """The driver takes as many as the caller has: where an element has its old size, so has the array."""
    struct, bracket, _ = params.partition("[")
    known = like.facts["field"].get((struct, WHOLE), (NONE, "4"))
    return bool(bracket) and sizes.get(struct) == int(known[1])


def _evaluated(expression: str, names: dict[str, int], sizes: dict[str, int]) -> int | None:
    """The expressions that mean the same in Python: a name, 1<<name, a size."""
    shifted = re.fullmatch(r"(?:(\d+)<<)?(\w+)", expression)
    if shifted and shifted[2] in names:
        return int(shifted[1]) << names[shifted[2]] if shifted[1] else names[shifted[2]]
    return next((known for struct, known in sizes.items() if expression == size(struct)), None)

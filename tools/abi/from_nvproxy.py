"""Where the fields of a struct lie, by gVisor's copy of it in Go (pkg/abi/nvgpu).

gVisor's nvproxy_driver_parity_test.go compares the offset and the type of every field with the source of
every driver that it supports; which ones those are is in pkg/sentry/devices/nvproxy/version.go
(addDriverABI).
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tools.abi.problem import Problem
from tools.abi.release import NONE, WHOLE, Release

_BYTES = {"Handle": 4, "ClassID": 4, "uint32": 4, "int32": 4, "P64": 8, "uint64": 8}
_FIELD = re.compile(r"^\s*(\w+)\s+(\S+)", re.M)


def layout(folder: Path, struct: str) -> Iterator[tuple[str, int, int]]:
    """Of each field its name as NVIDIA writes it, offset and bytes; at last the whole struct's."""
    pattern = re.compile(rf"^type {struct} struct \{{\n(.*?)^\}}", re.M | re.S)
    bodies = [
        found[1] for path in sorted(folder.glob("*.go")) if (found := pattern.search(path.read_text()))
    ]
    if not bodies:
        raise Problem(f"{folder}: no struct {struct}")
    at, alignment = 0, 1
    for name, kind in _FIELD.findall(re.sub(r"//.*", "", bodies[0])):
        if kind == "structs.HostLayout":
            continue
        if kind not in _BYTES:
            raise Problem(f"{folder}: {struct}.{name}: {kind} is of no known size")
        at = -(-at // _BYTES[kind]) * _BYTES[kind]
        yield name[0].lower() + name[1:], at, _BYTES[kind]
        at, alignment = at + _BYTES[kind], max(alignment, _BYTES[kind])
    yield WHOLE, 0, -(-at // alignment) * alignment


def add(release: Release, folder: Path, struct: str, source: str, like: Release) -> None:
    """Takes the struct into the facts of a driver that says less of it. Problem: those contradict it."""
    for name, at, size in layout(folder, struct):
        value = (NONE if name == WHOLE else f"{at:#x}", str(size))
        if (struct, name) not in like.facts["field"]:
            raise Problem(f"{struct} has no {name} in {like.version}, nor in any tag's headers")
        if release.facts["field"].setdefault((struct, name), value) != value:
            raise Problem(f"{struct}.{name}: {value}, and {release.version} is known to have it elsewhere")
    if source not in release.source:
        release.source += f"; {struct}: {source}"

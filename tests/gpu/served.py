"""What mgpu serves of the driver's interface, for experiments that refuse the rest: made with the kit."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from oci_specs.seccomp.notified import REFUSED_CUBES

FILE = Path(sys.prefix) / "served.json"
Served = Mapping[str, frozenset[int]]


def from_rows() -> dict[str, list[int]]:
    """To a share, by kind, in whatever version. What of the escapes is refused the filter says itself."""
    from tests.support import rm_interface

    rows = rm_interface.read()
    kinds = {"class": rows.classes, "control": rows.controls, "uvm": rows.uvm}
    return {
        kind: sorted({one.number for one in of if one.disposition != "REFUSED" and not one.whole})
        for kind, of in kinds.items()
    }


def read(path: Path = FILE) -> Served:
    return {kind: frozenset(numbers) for kind, numbers in json.loads(path.read_text()).items()}


def refused_by(served: Served) -> Callable[[str, int], bool]:
    """Whether mgpu would refuse a call of that kind and number; of an escape, of that command."""

    def refuses(kind: str, number: int) -> bool:
        if kind == "escape":
            return any(number & mask == datum for mask, datum in REFUSED_CUBES)
        return kind in served and number not in served[kind]

    return refuses

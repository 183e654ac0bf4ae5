"""The facts of one version of NVIDIA's kernel driver."""

import functools
import re
from dataclasses import dataclass, field

Key = tuple[str, ...]
Value = tuple[str, ...]

# kind: (what identifies a fact, what it says). Params without bytes: a struct whose size is not known.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "status": (("symbol",), ("number",)),
    "escape": (("symbol", "params"), ("number", "bytes")),
    "uvm": (("symbol",), ("number", "params", "bytes")),
    "class": (("symbol",), ("number", "params", "bytes")),
    "control": (("symbol",), ("number", "params", "bytes")),
    "privilege": (("control",), ("privilege", "access_right")),
    "constant": (("symbol",), ("number",)),
    "field": (("params", "field"), ("offset", "bytes")),
}
# The size of a struct is told as a field of this name.
WHOLE = "(size)"
NONE = "-"


@dataclass
class Release:
    """facts: by kind, what is said of what. complete: what it does not name is not in the driver."""

    version: str
    source: str
    complete: bool = True
    facts: dict[str, dict[Key, Value]] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    def count(self) -> int:
        return sum(map(len, self.facts.values()))


@functools.cache
def order(version: str) -> tuple[int, ...]:
    """For sorting: 535.86.05 is before 535.288.01."""
    return tuple(int(word) for word in re.findall(r"\d+", version))


def is_version(text: str) -> bool:
    return re.fullmatch(r"\d{3}\.\d+(\.\d+)?", text) is not None

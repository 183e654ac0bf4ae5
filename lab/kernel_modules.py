"""Which of a kernel's modules a guest has. A module names those that it needs in itself, so nothing has to be
asked of a program that only the guest's release has.
"""

import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_NEEDED = re.compile(rb"(?:depends|softdep)=([^\0]*)\0")
_SUFFIXES = (".ko", ".ko.xz")


def content(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def in_order(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The modules of those names and all that they need, each after what it needs: names and contents.

    A name that is no module is built into the kernel.
    """
    there = {_name(path): path for path in folder.rglob("*.ko*") if path.name.endswith(_SUFFIXES)}
    done: set[str] = set()

    def with_needs(name: str) -> Iterator[tuple[str, bytes]]:
        if name in done or name not in there:
            return
        done.add(name)
        held = content(there[name])
        for needed in _NEEDED.findall(held):
            for other in re.split(r"[ ,]+", needed.decode().replace("pre:", "").replace("post:", "")):
                yield from with_needs(other.replace("-", "_"))
        yield name, held

    for name in names:
        yield from with_needs(name)


def _name(path: Path) -> str:
    return path.name.split(".", 1)[0].replace("-", "_")

"""Writes rm/facts/userd.tsv from a clone of NVIDIA's open-gpu-kernel-modules: `userd_words.py CLONE`.

Where GP_GET and GP_PUT are in the Control struct of each channel class, in bytes; -: the class has no such
word. Every served tag has to say the same.
"""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET = Path("native_sched/nvidia/rm/facts/userd.tsv")
HEADERS = "src/common/sdk/nvidia/inc/class/"
CLASSES = ("c36f", "c46f", "c56f", "c86f", "c96f", "ca6f")
FIRST = (535, 86)
STRUCT = re.compile(r"typedef volatile struct \w+Control\w*\s*\{(.*?)\}", re.S)
FIELD = re.compile(r"NvU32\s+(\w+)(?:\[(\w+)\])?\s*;")


def git(clone: Path, *args: str) -> str:
    return subprocess.run(["git", "-C", clone, *args], capture_output=True, text=True, check=False).stdout


def words(header: str) -> tuple[str, str]:
    found = STRUCT.search(header)
    if found is None:
        raise SystemExit("userd_words: a header without its Control struct")
    at, places = 0, {}
    for name, count in FIELD.findall(found[1]):
        places[name] = hex(at)
        at += 4 * int(count or "1", 0)
    return places.get("GPGet", "-"), places["GPPut"]


def rows(clone: Path) -> list[tuple[str, ...]]:
    tags = [tag for tag in git(clone, "tag", "--sort=v:refname").split() if tag[0].isdigit()]
    served = [tag for tag in tags if tuple(map(int, tag.split(".")[:2])) >= FIRST]
    found: list[tuple[str, ...]] = []
    for name in CLASSES:
        said = {tag: text for tag in served if (text := git(clone, "show", f"{tag}:{HEADERS}cl{name}.h"))}
        places = {words(text) for text in said.values()}
        if len(places) != 1:
            raise SystemExit(f"userd_words: cl{name}.h differs by version: {places}")
        found.append((f"0x{name}", *places.pop(), f"cl{name}.h", next(iter(said)), list(said)[-1]))
    return found


def main(clone: Path) -> None:
    head = ("class", "gp_get", "gp_put", "header", "first", "last")
    (REPOSITORY / TARGET).write_text("".join("\t".join(row) + "\n" for row in (head, *rows(clone))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

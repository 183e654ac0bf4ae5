"""Names that nothing uses: of a Python module, C constants, and functions that a header declares."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.count.lines import words

# pytest and Python call these by their names.
CALLED = re.compile(r"test_|pytest|__")
# Of libraries that programs load, which have a name for each function of NVIDIA's.
EXPORTS = ("sim/libcuda/cuda_", "sim/libnvml/")
# A declaration begins in the first column.
_FUNCTION = re.compile(r"^(?!static)[a-z][\w *]*\b(\w+)\(", re.MULTILINE)
_CONSTANT = re.compile(r"^(?:#define|enum \{) ((?!_)\w+) ", re.MULTILINE)

Places = defaultdict[str, Counter[str]]  # a word: how often each file has it


def unused(base: Path, names: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Of `sources`, by any of the files `names`: each as "NAME of FILE"."""
    places: Places = defaultdict(Counter)
    for name in names:
        if not name.endswith(".md"):  # texts speak of names and use none
            for word in words(base / name):
                places[word][name] += 1
    return [f"{word} of {name}" for name in sources for word in _of(base / name, name, places)]


def _of(path: Path, name: str, places: Places) -> Iterator[str]:
    text = path.read_text()
    for word in _defined(text) if path.suffix == ".py" else _CONSTANT.findall(text):
        pasted = f"{word.rpartition('_')[0]}_##" in text
        if places[word].total() == 1 and not CALLED.match(word) and not pasted:
            yield word
    if path.suffix == ".h" and not name.startswith(EXPORTS):
        # At most the source that defines it speaks of it, too.
        yield from (f for f in _FUNCTION.findall(text) if places[f][name] == 1 and len(places[f]) <= 2)


def _defined(text: str) -> Iterator[str]:
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and not statement.decorator_list:
            yield statement.name
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id

"""What the unit tests reach of Python and the native ones of C, by room: a plugin, with MGPU_COVERED=1.

Of Python a statement in a function counts, of C a line that the compiler made code of. C that no test builds
as a library is in no room.
"""

import ast
import ctypes
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.support.commands import run
from tests.support.places import REPOSITORY
from tools.count import floors
from tools.count.figures import PRODUCTS

ON = os.environ.get("MGPU_COVERED") == "1"
FLAGS = ("--coverage", "-Wl,-u,__gcov_dump") if ON else ()
# The libraries with C in them that this process has loaded, and where their objects are.
LIBRARIES: set[Path] = set()
_ROOMS = tuple(f"{folder}/" for product in ("arbiter", "node") for folder in PRODUCTS[product])

Lines = set[tuple[str, int]]


def room(file: str) -> str:
    """Three folders at most, and the language."""
    folders = PurePosixPath(file).parts[:-1][:3]
    return f"{'/'.join(folders)}, {'Python' if file.endswith('.py') else 'C'}"


def shares(there: Lines, reached: Lines) -> dict[str, int]:
    """By room, per cent of its lines that were reached, rounded down."""
    of_room = Counter(room(file) for file, _ in there)
    found = Counter(room(file) for file, _ in there & reached)
    return {name: 100 * found[name] // count for name, count in sorted(of_room.items())}


def statements(tree: ast.AST) -> Iterator[int]:
    """The lines of statements in functions, without docstrings."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                if isinstance(node, ast.stmt) and node is not function and not text:
                    yield node.lineno


class Covered:
    """The plugin."""

    def __init__(self) -> None:
        import coverage

        roots = [str(REPOSITORY / folder) for folder in _ROOMS]
        self._python = coverage.Coverage(data_file=None, config_file=False, source=roots, messages=False)
        self._python.set_option("run:disable_warnings", ["module-not-imported"])
        self._runs = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tracing costs time: only where Python is what is tested."""
        if (wanted := nodeid.startswith("tests/unit/")) != self._runs:
            (self._python.start if wanted else self._python.stop)()
            self._runs = wanted

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._runs:
            self._python.stop()
        self.found = {**self._of_python(), **_of_c()}
        self.below = floors.below(self.found)
        if self.below and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("lines that are reached, per cent, by room", sep="=")
        for name, share in self.found.items():
            terminalreporter.write_line(f"{name:40} {share:3}")
        for line in self.below:
            terminalreporter.write_line(f"BELOW ITS FLOOR {line}")

    def _of_python(self) -> dict[str, int]:
        data = self._python.get_data()
        there: Lines = set()
        reached: Lines = set()
        for path in (each for folder in _ROOMS for each in (REPOSITORY / folder).rglob("*.py")):
            name = path.relative_to(REPOSITORY).as_posix()
            there |= {(name, line) for line in statements(ast.parse(path.read_text()))}
            reached |= {(name, line) for line in data.lines(str(path)) or ()}
        return shares(there, reached)


def _of_c() -> dict[str, int]:
    there: Lines = set()
    reached: Lines = set()
    for library in LIBRARIES:
        ctypes.CDLL(str(library)).__gcov_dump()
    for file in _gcov({library.parent for library in LIBRARIES}):
        name = os.path.relpath(os.path.join(file["of"], file["file"]), REPOSITORY)
        if name.startswith(_ROOMS):
            there |= {(name, line["line_number"]) for line in file["lines"]}
            reached |= {(name, line["line_number"]) for line in file["lines"] if line["count"]}
    return shares(there, reached)


def _gcov(folders: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for folder in folders:
        counted = sorted(folder.glob("*.gcda"))
        for line in run("gcov", "--json-format", "--stdout", *counted, cwd=folder).splitlines():
            one = json.loads(line)
            yield from ({**file, "of": one["current_working_directory"]} for file in one["files"])


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Covered(), "covered")

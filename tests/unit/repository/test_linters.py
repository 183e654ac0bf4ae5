"""What a linter can say about the sources, as tests."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.commands import Done, attempt
from tests.support.places import REPOSITORY
from tests.support.tree import PYTHON, SHELL, TEXT, C, files_of, relative
from tools.count.lines import MAX_COLUMNS, wide_comments

MAX_LINES = 500
# The page of a table that a program wrote is as long as the table.
LONG_TEXTS = frozenset({"LICENSE", "rm-interface.md"})
# Tables that a program wrote, a fact a line: they are as long as NVIDIA's interface, and columns are tabs.
FACTS = ".tsv"
# gofmt indents with tabs.
GO = ".go"
# Tables that people write, a row a line.
TABLES = frozenset({"interface.def"})
SHOWN_LINES = 40
PUTS_OFF = "from __future__ import annotations\n"
# Programs of the kit run by Pythons of others', older ones too.
OTHERS_PYTHON = REPOSITORY / "tests/gpu/programs"
# At most this many names of files are shown: a rule that fails everywhere needs no list.
SHOWN = 20

pytestmark = pytest.mark.timeout(300)


def judged(*argv: str | Path) -> Done:
    program = shutil.which(argv[0], path=f"{sys.prefix}/bin:/usr/bin:/bin")
    assert program is not None, f"{argv[0]} is not installed: run the linters with make lint"
    return attempt(program, *argv[1:], cwd=REPOSITORY, timeout_s=300)


def passes(*argv: str | Path) -> None:
    """Run a linter; its own words are the failure."""
    done = judged(*argv)
    if done.status != 0:
        said = (done.out + done.err).strip().splitlines()
        pytest.fail("\n".join([f"{argv[0]}:", *said[:SHOWN_LINES]]), pytrace=False)


def none_of(files: Sequence[Path], what: str) -> None:
    names = [relative(path) for path in files]
    assert not names, f"{what}: {', '.join(names[:SHOWN])}"


def test_ruff_check() -> None:
    passes("ruff", "check", "--no-cache", "--quiet", ".")


def test_ruff_format() -> None:
    passes("ruff", "format", "--no-cache", "--quiet", "--check", "--diff", ".")


def test_annotations_are_put_off_only_where_a_name_is_not_there_yet(tmp_path: Path) -> None:
    """Or is there for mypy alone: ruff finds such names once the line is left out."""
    copies: dict[Path, Path] = {}
    for path in files_of(PYTHON):
        text = path.read_text()
        if PUTS_OFF in text and OTHERS_PYTHON not in path.parents:
            copies[path] = tmp_path / f"{len(copies)}.py"
            copies[path].write_text(text.replace(PUTS_OFF, ""))
    names = ("--select=F821,TC004", "--target-version=py311", "--output-format=concise")
    found = judged("ruff", "check", "--isolated", "--no-cache", *names, tmp_path).out
    needless = [path for path, copy in copies.items() if f"{copy}:" not in found]
    none_of(needless, "annotations are put off, and need not be")


def test_mypy() -> None:
    passes("mypy", ".")


def test_clang_format() -> None:
    passes("clang-format", "--dry-run", "--Werror", *files_of(C))


def test_shellcheck() -> None:
    passes("shellcheck", *files_of(SHELL))


def test_codespell() -> None:
    passes(
        "codespell",
        *(path for path in files_of(TEXT) if path.name not in LONG_TEXTS and path.suffix != FACTS),
    )


def test_files_are_small() -> None:
    none_of(
        [
            path
            for path in files_of(TEXT)
            if path.name not in LONG_TEXTS | TABLES
            and path.suffix != FACTS
            and len(path.read_bytes().splitlines()) > MAX_LINES
        ],
        f"more than {MAX_LINES} lines",
    )


def test_comments_are_narrow() -> None:
    none_of(
        [path for path in (*files_of(C), *files_of(PYTHON)) if wide_comments(path)],
        f"comments over {MAX_COLUMNS} columns",
    )


def test_sources_have_no_tabs() -> None:
    none_of(
        [
            path
            for path in files_of(TEXT)
            if path.name != "Makefile" and path.suffix not in (FACTS, GO) and b"\t" in path.read_bytes()
        ],
        "tabs",
    )


def test_sources_have_no_trailing_space_and_one_newline_at_the_end() -> None:
    wrong = []
    for path in files_of(TEXT):
        content = path.read_bytes()
        untidy_line = any(line != line.rstrip() for line in content.split(b"\n"))
        if content and (untidy_line or not content.endswith(b"\n") or content.endswith(b"\n\n")):
            wrong.append(path)
    none_of(wrong, "trailing space, or not exactly one newline at the end")


def test_python_is_python() -> None:
    assert files_of(PYTHON), "git lists no Python file: the other tests here would look at nothing"
    assert files_of(C)
    assert files_of(SHELL)

"""The repository's own files by kind, as git lists them: committed ones, and new ones that it does not
ignore.
"""

import functools
import shutil
from pathlib import Path

from tests.support.commands import attempt, run
from tests.support.places import REPOSITORY

C = "C"
PYTHON = "Python"
SHELL = "shell"
TEXT = "text"

# The one who runs the tests, root, need not own the clone.
GIT = ("git", "-c", f"safe.directory={REPOSITORY}")
_C_SUFFIXES = frozenset({".c", ".h"})
_SHELLS = (b"#!/bin/sh", b"#!/usr/bin/env bash", b"#!/bin/bash")


@functools.cache
def everything() -> tuple[Path, ...]:
    """Every file, sorted. AssertionError where git does not know the repository."""
    listed = run(*GIT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=REPOSITORY)
    found = (REPOSITORY / name for name in listed.split("\0") if name)
    return tuple(sorted(path for path in found if path.is_file()))


def files_of(kind: str) -> list[Path]:
    """C: sources and headers; PYTHON; SHELL: scripts by first line; TEXT: all of them and whatever else is
    UTF-8.
    """
    return [path for path in everything() if kind in _kinds(path)]


@functools.cache
def _kinds(path: Path) -> frozenset[str]:
    content = path.read_bytes()
    kinds = set()
    if path.suffix in _C_SUFFIXES:
        kinds.add(C)
    if path.suffix == ".py":
        kinds.add(PYTHON)
    if path.suffix == ".sh" or content.startswith(_SHELLS):
        kinds.add(SHELL)
    if _is_text(content):
        kinds.add(TEXT)
    return frozenset(kinds)


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def copy_to(folder: Path) -> None:
    """A copy of every file below the folder, in its place, made now."""
    for path in everything():
        target = folder / relative(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def has(commit: str) -> bool:
    """Whether what is checked out descends from the commit; a source archive or a shallow clone has none."""
    return attempt(*GIT, "merge-base", "--is-ancestor", commit, "HEAD", cwd=REPOSITORY).status == 0


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()

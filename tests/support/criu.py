"""CRIU as Debian 13 has it, in a folder of its own: Debian 12's does not know the vDSO of new kernels."""

import functools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY
from tools.debian_archive import Archive, Unavailable

ROOT = REPOSITORY / "build" / "criu"
SUITE = "trixie"
SCRIPT = """#!/bin/sh
exec {tree}/usr/lib64/ld-linux-x86-64.so.2 --library-path {tree}/usr/lib/x86_64-linux-gnu {tree}/usr/sbin/criu "$@"
"""


@functools.cache
def folder() -> Path:
    """Where the program `criu` is. Unavailable: the archive does not answer."""
    made = ROOT / "bin"
    if (made / "criu").is_file():
        return made
    archive = Archive(ROOT, "deb", (SUITE,), "main")
    address = archive.update()
    done = archive.run("apt-get", "install", "--yes", "--download-only", "--no-install-recommends", "criu")
    packages = sorted((ROOT / "cache/archives").glob("*.deb"))
    if done.returncode or not packages:
        raise Unavailable(
            f"{address} does not answer, or has no criu in {SUITE}: {done.stderr.strip()[-200:]}"
        )
    tree = ROOT / "tree"
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
    made.mkdir(exist_ok=True)
    (made / "criu").write_text(SCRIPT.format(tree=tree))
    (made / "criu").chmod(0o755)
    return made


@contextmanager
def on_path() -> Iterator[None]:
    """For the programs that this process starts. Where it cannot be had the tests are skipped."""
    try:
        found = folder()
    except Unavailable as error:
        pytest.skip(str(error))
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{found}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before

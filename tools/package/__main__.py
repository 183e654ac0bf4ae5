"""Makes what is released: `python -m tools.package FOLDER [RELEASE...]`, every Debian release unless named.

A Debian package for each product (products.py), and a folder in an archive for other systems, which needs
this machine's version of Python.
"""

import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import release
from tools.package import deb, tree
from tools.portable import tree as portable

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def archive(tree: Path, folder: Path) -> Path:
    """The folder, packed: wherever it is unpacked it runs."""
    name = f"mgpu-{release.version()}"
    out = folder / f"{name}-python{PYTHON}-linux-x86_64.tar.gz"
    with tarfile.open(out, "w:gz", compresslevel=6) as packed:
        packed.add(tree, name, filter=_roots)
    return out


def _roots(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    if member.isdir():
        member.mode = 0o755
    return member


def main(arguments: Sequence[str]) -> int:
    folder, *suites = arguments
    target = Path(folder).absolute()
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as made:
            for suite in suites or deb.RELEASES:
                print(*deb.make(suite, Path(made), target).values(), sep="\n")
            if not suites:
                print(archive(tree.below(Path(made), PYTHON), target))
    except portable.PortableError as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A package for a Debian release: `apt install ./mgpu_VERSION_amd64.deb` sets up a node."""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
from pathlib import Path

from tools import release
from tools.portable import tree as portable

PLACE = Path("opt/mgpu")
# The part of the version that sets a release's package apart and in order, and the release's own Python 3.
RELEASES = {"bookworm": ("deb12", "3.11"), "trixie": ("deb13", "3.13"), "sid": ("debsid", "3.14")}
_HERE = Path(__file__).parent / "debian"
_CONTROL = """\
Package: mgpu
Version: {version}
Architecture: amd64
Maintainer: mgpu <root@localhost>
Section: admin
Priority: optional
Installed-Size: {kib}
Depends: python{python}, libc6 (>= 2.36), init-system-helpers, procps
Recommends: runc | crun
Suggests: containerd | docker.io | podman
Homepage: https://mgpu.dev
Description: shares NVIDIA GPUs between containers
 Hard memory caps, shares of time and preemption with the stock driver, and
 nothing injected into the container. Installing it points the engines of this
 node at mgpu and starts its services; removing it undoes that.
"""
_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: mgpu

Files: *
Copyright: the authors of mgpu
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

Files: opt/mgpu/lib/python*/site-packages/*
Copyright: see the *.dist-info folders there
License: see the *.dist-info folders there
"""
_COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/mgpu",
    "zsh": "usr/share/zsh/vendor-completions/_mgpu",
    "fish": "usr/share/fish/vendor_completions.d/mgpu.fish",
}


def version(suite: str) -> str:
    return f"{release.version()}+{RELEASES[suite][0]}"


def make(suite: str, tree: Path, folder: Path) -> Path:
    """The package of that Debian release, written to `folder`. PortableError in one line.

    tree: mgpu for that release's Python (tree.py).
    """
    with tempfile.TemporaryDirectory(dir=folder) as made:
        root = Path(made)
        shutil.copytree(tree, root / PLACE, symlinks=True)
        _beside(root)
        _control(root, suite)
        root.chmod(0o755)
        out = folder / f"mgpu_{version(suite)}_amd64.deb"
        portable.run("dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", root, out)
    return out


def _beside(root: Path) -> None:
    """Files that a system looks for in places of its own."""

    def write(path: str, data: bytes) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)

    command = root / "usr/bin/mgpu"
    command.parent.mkdir(parents=True)
    command.symlink_to(f"/{PLACE}/bin/mgpu")
    for shell, path in _COMPLETIONS.items():
        write(path, portable.run(Path(sys.prefix, "bin", "mgpu"), "completion", shell).encode())
    # Debian's tools want the same file from the same source.
    manual = (root / PLACE / "share/man/man1/mgpu.1").read_bytes()
    write("usr/share/man/man1/mgpu.1.gz", gzip.compress(manual, mtime=0))
    write("usr/share/doc/mgpu/copyright", _COPYRIGHT.encode())
    news = (release.REPOSITORY / "NEWS.md").read_bytes()
    write("usr/share/doc/mgpu/NEWS.md.gz", gzip.compress(news, mtime=0))
    for name in ("node.toml", "mgpud.env"):
        write(f"etc/mgpu/{name}", (_HERE / name).read_bytes())


def _control(root: Path, suite: str) -> None:
    folder = root / "DEBIAN"
    folder.mkdir()
    for name in ("postinst", "prerm", "postrm"):
        shutil.copy(_HERE / name, folder)
        (folder / name).chmod(0o755)
    (folder / "conffiles").write_text("/etc/mgpu/node.toml\n/etc/mgpu/mgpud.env\n")
    kib = portable.size_bytes(root) >> 10
    (folder / "control").write_text(
        _CONTROL.format(version=version(suite), kib=kib, python=RELEASES[suite][1])
    )

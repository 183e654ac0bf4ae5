"""Packages for a Debian release: `apt install ./mgpu_VERSION_amd64.deb` sets up a node."""

import gzip
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools import release
from tools.package import products, tree
from tools.package.products import CLUSTER, NODE, Product
from tools.portable import tree as portable

PLACE = Path("opt/mgpu")
# The part of the version that sets a release's package apart and in order, and the release's own Python 3.
RELEASES = {"bookworm": ("deb12", "3.11"), "trixie": ("deb13", "3.13"), "sid": ("debsid", "3.14")}
_HERE = Path(__file__).parent / "debian"
_CONTROL = """\
Package: {name}
Version: {version}
Architecture: amd64
Maintainer: mgpu <root@localhost>
Section: admin
Priority: optional
Installed-Size: {kib}
{relations}
Homepage: https://mgpu.dev
Description: {summary}
{text}
"""
_OF_NODE = """\
Depends: python{python}, libc6 (>= 2.36), init-system-helpers, procps
Recommends: runc | crun
Suggests: containerd | docker.io | podman, mgpu-sim"""
# One package had all files before.
_BESIDE_NODE = """\
Depends: mgpu (= {version})
Breaks: mgpu (<< {version})
Replaces: mgpu (<< {version})"""
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
_SCRIPTS = ("postinst", "prerm", "postrm")
_COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/mgpu",
    "zsh": "usr/share/zsh/vendor-completions/_mgpu",
    "fish": "usr/share/fish/vendor_completions.d/mgpu.fish",
}


def version(suite: str) -> str:
    return f"{release.version()}+{RELEASES[suite][0]}"


def make(
    suite: str, trees: Path, folder: Path, wanted: Sequence[Product] = products.ALL
) -> dict[Product, Path]:
    """The packages of that Debian release, written to `folder`. PortableError in one line.

    trees: where mgpu is, or is made, for that release's Python (tree.py).
    """
    python = RELEASES[suite][1]
    made = {}
    for product in wanted:
        if product == CLUSTER:
            # All of it, with what came from PyPI.
            held = tree.of_cluster(trees, python)
            files = list(products.files(held))
        else:
            held = tree.below(trees, python)
            files = [file for file in products.files(held) if products.of(file) == product]
        made[product] = _make(product, suite, held, files, folder)
    return made


def path(product: Product, suite: str, folder: Path) -> Path:
    return folder / f"{product.name}_{version(suite)}_amd64.deb"


def _make(product: Product, suite: str, held: Path, files: Iterable[Path], folder: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        root = Path(made)
        for file in files:
            target = root / PLACE / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(held / file, target, follow_symlinks=False)
        if product == NODE:
            _beside_node(root)
        elif product == CLUSTER:
            _beside_cluster(root)
        _write(root / "usr/share/doc" / product.name / "copyright", _COPYRIGHT.encode())
        _control(root, suite, product)
        root.chmod(0o755)
        out = path(product, suite, folder)
        portable.run("dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", root, out)
    return out


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _link(root: Path, name: str) -> None:
    command = root / "usr/bin" / name
    command.parent.mkdir(parents=True, exist_ok=True)
    command.symlink_to(f"/{PLACE}/bin/{name}")


def _beside_node(root: Path) -> None:
    """Files that a system looks for in places of its own."""
    _link(root, "mgpu")
    for shell, path in _COMPLETIONS.items():
        _write(root / path, portable.run(Path(sys.prefix, "bin", "mgpu"), "completion", shell).encode())
    # Debian's tools want the same file from the same source.
    manual = (root / PLACE / "share/man/man1/mgpu.1").read_bytes()
    _write(root / "usr/share/man/man1/mgpu.1.gz", gzip.compress(manual, mtime=0))
    news = (release.REPOSITORY / "NEWS.md").read_bytes()
    _write(root / "usr/share/doc/mgpu/NEWS.md.gz", gzip.compress(news, mtime=0))
    for name in ("node.toml", "mgpud.env"):
        _write(root / "etc/mgpu" / name, (_HERE / name).read_bytes())


def _beside_cluster(root: Path) -> None:
    for program in sorted((root / PLACE / "bin").iterdir()):
        _link(root, program.name)
    portable.copy(release.REPOSITORY / "cluster/kubectl-mgpu", root / "usr/bin/kubectl-mgpu")


def _control(root: Path, suite: str, product: Product) -> None:
    folder = root / "DEBIAN"
    folder.mkdir()
    scripts, relations = _HERE, _OF_NODE
    if product == NODE:
        (folder / "conffiles").write_text("/etc/mgpu/node.toml\n/etc/mgpu/mgpud.env\n")
    else:
        scripts, relations = _HERE / "beside", _BESIDE_NODE
    for script in scripts.iterdir():
        if script.name in _SCRIPTS:
            shutil.copy(script, folder)
            (folder / script.name).chmod(0o755)
    (folder / "control").write_text(
        _CONTROL.format(
            name=product.name,
            version=version(suite),
            kib=portable.size_bytes(root) >> 10,
            relations=relations.format(version=version(suite), python=RELEASES[suite][1]),
            summary=product.summary,
            text=textwrap.indent(product.text, " "),
        )
    )

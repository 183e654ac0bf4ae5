"""The node's disks: a root that is written to, and one with what is brought to it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lab import images, packages, pairs
from lab.error import LabError
from lab.hosts import kernels
from lab.places import BUILD, LAB, made_anew
from tools.package import deb, tree
from tools.portable.tree import PortableError

SUITE = pairs.LINUX_6_1.suite
SPARE_MIB = 64


def package() -> Path:
    """What `make package` makes for the guest's release, of mgpu as it is built now."""
    folder = LAB / "hosts/package"
    made = folder / f"mgpu_{deb.version(SUITE)}_amd64.deb"
    if not made.exists() or made.stat().st_mtime < (BUILD / "stamps/installed").stat().st_mtime:
        with made_anew(folder) as new:
            try:
                deb.make(SUITE, tree.below(new, deb.RELEASES[SUITE][1]), new)
            except PortableError as error:
                raise LabError(str(error)) from error
    return made


def brought(kernel: kernels.Kernel) -> Path:
    """The kernel's modules and mgpu's package."""
    made = package()
    folder = LAB / "hosts/brought" / kernel.release
    image = folder / "brought.img"
    if not image.exists() or image.stat().st_mtime < made.stat().st_mtime:
        modules = kernels.unpacked(kernel) / kernel.release
        with made_anew(folder) as new:
            staged = new / "staged"
            images.modules(staged, modules, packages.kernel_root(pairs.LINUX_6_1))
            shutil.copy(made, staged / "mgpu.deb")
            # For a guest that does not install it.
            subprocess.run(["dpkg-deb", "--extract", made, staged / "package"], check=True)
            images.compiled(staged / "package/opt/mgpu/lib", deb.RELEASES[SUITE][1])
            images.image(staged, new / image.name, images.mib(staged) * 5 // 4 + SPARE_MIB)
            shutil.rmtree(staged)
    return image


def root(folder: Path) -> Path:
    """A fresh copy of the guest's root, in `folder`."""
    copy = folder / "root.img"
    subprocess.run(
        ["cp", "--sparse=always", "--reflink=auto", images.root_image(pairs.LINUX_6_1), copy], check=True
    )
    return copy

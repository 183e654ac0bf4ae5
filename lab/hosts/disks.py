"""The node's disks: a root that is written to, and one with what is brought to it."""

import shutil
import subprocess
from pathlib import Path

from lab import images, packages, pairs
from lab.error import LabError
from lab.hosts import kernels
from lab.places import BUILD, LAB, made_anew
from tools.package import deb, products
from tools.portable.tree import PortableError

SUITE = pairs.LINUX_6_1.suite
SPARE_MIB = 64
PRODUCTS = (products.NODE, products.SIMULATOR)


def packages_of_mgpu() -> list[Path]:
    """Those of PRODUCTS, as `make package` makes them, of mgpu as it is built now."""
    folder = LAB / "hosts/package"
    made = [deb.path(product, SUITE, folder) for product in PRODUCTS]
    built = (BUILD / "stamps/installed").stat().st_mtime
    if not all(path.exists() and path.stat().st_mtime >= built for path in made):
        with made_anew(folder) as new:
            try:
                deb.make(SUITE, new, new, PRODUCTS)
            except PortableError as error:
                raise LabError(str(error)) from error
    return made


def brought(kernel: kernels.Kernel) -> Path:
    """The kernel's modules and mgpu's packages."""
    made = packages_of_mgpu()
    folder = LAB / "hosts/brought" / kernel.release
    image = folder / "brought.img"
    if not image.exists() or image.stat().st_mtime < max(path.stat().st_mtime for path in made):
        modules = kernels.unpacked(kernel) / kernel.release
        with made_anew(folder) as new:
            staged = new / "staged"
            images.modules(staged, modules, packages.kernel_root(pairs.LINUX_6_1))
            for product, path in zip(PRODUCTS, made, strict=True):
                shutil.copy(path, staged / f"{product.name}.deb")
                # For a guest that does not install it.
                subprocess.run(["dpkg-deb", "--extract", path, staged / "package"], check=True)
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

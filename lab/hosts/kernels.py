"""The kernels that Debian ships, oldest first. The guest's root is the same under each."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.error import LabError
from lab.places import LAB, made_anew
from tools.debian_archive import Archive, Unavailable


@dataclass(frozen=True)
class Kernel:
    """release is what `uname -r` says; packages hold the kernel and its modules."""

    release: str
    suite: str
    packages: tuple[str, ...]


def _whole(release: str, suite: str, *, signed: str = "") -> Kernel:
    return Kernel(release, suite, (f"linux-image-{release}{signed}",))


def _split(release: str, suite: str) -> Kernel:
    return Kernel(release, suite, (f"linux-binary-{release}", f"linux-modules-{release}"))


KERNELS = (
    _whole("5.10.0-32-amd64", "bullseye", signed="-unsigned"),
    _whole("6.1.0-50-amd64", "bookworm", signed="-unsigned"),
    _whole("6.12.117+deb13-amd64", "trixie"),
    _split("7.2.13+deb14-amd64", "sid"),
    _split("7.3-amd64", "experimental"),
)


def named(name: str) -> Kernel:
    """By its release, or the first numbers of it."""
    found = [kernel for kernel in KERNELS if f"{kernel.release}.".startswith((f"{name}.", f"{name}-"))]
    if len(found) != 1:
        raise LabError(f"{name} is no kernel; there are {', '.join(kernel.release for kernel in KERNELS)}")
    return found[0]


def unpacked(kernel: Kernel) -> Path:
    """A folder with vmlinuz, and the modules in one of the release's name."""
    folder = LAB / "hosts/kernels" / kernel.release
    if not folder.exists():
        print(f"hosts: fetching Linux {kernel.release} ({kernel.suite})", flush=True)
        with made_anew(folder) as new:
            root = new / "root"
            for package in _fetched(kernel, new):
                subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
                package.unlink()
            [modules] = (path for top in ("lib", "usr/lib") for path in (root / top).glob("modules/*"))
            [image] = (*root.glob("boot/vmlinuz-*"), *modules.glob("vmlinuz"))
            image.rename(new / "vmlinuz")
            modules.rename(new / kernel.release)
            shutil.rmtree(root)
    return folder


def _fetched(kernel: Kernel, folder: Path) -> list[Path]:
    archive = Archive(LAB / "apt/main" / kernel.suite, "deb", (kernel.suite,), "main")
    try:
        mirror = archive.update()
    except Unavailable as error:
        raise LabError(str(error)) from error
    done = archive.run("apt-get", "--quiet", "download", *kernel.packages, cwd=folder)
    if done.returncode != 0:
        names = " ".join(kernel.packages)
        raise LabError(f"{mirror} has no {names} in {kernel.suite}; choose another in lab/hosts/kernels.py")
    return sorted(folder.glob("*.deb"))

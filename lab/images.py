"""The guest's disks: a Debian root with the kernel's modules, and the project as it was built."""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sysconfig
from pathlib import Path

from lab import packages
from lab.error import LabError
from lab.pairs import Kernel
from lab.places import BUILD, LAB, REPOSITORY, made_anew
from tests.gpu import kit
from tools.package import tree
from tools.portable.tree import PortableError

ROOT_MIB = 4096
# Room for what a root of its own holds besides files: ext4 keeps some for itself.
SPARE_MIB = 64
# A guest has disks, a card, and no other hardware.
DRIVERS = ("block", "char", "gpu/drm", "net", "virtio", "firmware", "pci")
GUEST_PYTHON = {"bullseye": "3.9", "bookworm": "3.11", "trixie": "3.13", "sid": "3.14"}


def root_image(kernel: Kernel) -> Path:
    """The root disk: written to in copies of a guest's own only."""
    folder, packed = LAB / "guests" / kernel.release, " ".join(packages.GUEST)
    listed = folder / "packages"
    if not listed.exists() or listed.read_text() != packed:
        with made_anew(folder) as new:
            (new / "packages").write_text(packed)
            modules = packages.kernel_root(kernel) / "lib/modules" / kernel.release
            root = new / "root"
            packages.guest_root(kernel, root)
            print(f"lab: making the disk of {kernel.release}", flush=True)
            _modules(root, modules, kernel)
            _settled(root)
            _image(root, new / "root.img", ROOT_MIB)
            shutil.rmtree(root)
    return folder / "root.img"


def project_image(suite: str) -> Path:
    """mgpu as it is built now, for that release's Python, and programs of others for its containers.

    Made anew after a build.
    """
    stamp = BUILD / "stamps/installed"
    if not stamp.exists():
        raise LabError("mgpu is not built: make build")
    folder = LAB / "project" / suite
    image = folder / "project.img"
    sources = [stamp, BUILD / "image/mgpu-test.tar", BUILD / "foreign/installed"]
    newest = max(path.stat().st_mtime for path in sources if path.exists())
    if not image.exists() or image.stat().st_mtime < newest:
        with made_anew(folder) as new:
            staged = new / "staged"
            staged.mkdir()
            try:
                tree.below(new, GUEST_PYTHON[suite]).rename(staged / "mgpu")
            except PortableError as error:
                raise LabError(str(error)) from error
            kit.programs(staged / "mgpu")
            _compiled(staged / "mgpu", GUEST_PYTHON[suite])
            for path, name in (
                (BUILD / "image/mgpu-test.tar", "mgpu-test.tar"),
                (BUILD / "image/rootfs", "rootfs"),
                (BUILD / "foreign/packages", "foreign"),
                (BUILD / "foreign/packages-550", "foreign-550"),
            ):
                if path.exists():
                    subprocess.run(["cp", "-a", "--reflink=auto", path, staged / name], check=True)
            _image(staged, new / "project.img", _mib(staged) * 5 // 4 + SPARE_MIB)
            shutil.rmtree(staged)
    return image


def _compiled(folder: Path, version: str) -> None:
    """For a guest with this Python; another one compiles what it imports, 20 s of its time for mgpud."""
    if sysconfig.get_python_version() == version:
        compileall.compile_dir(folder, quiet=2, workers=0)


def _modules(root: Path, modules: Path, kernel: Kernel) -> None:
    target = root / "lib/modules" / kernel.release
    target.mkdir(parents=True)
    for path in modules.glob("modules.*"):
        shutil.copy(path, target)
    for kind in (
        "arch",
        "block",
        "crypto",
        "fs",
        "lib",
        "mm",
        "net",
        "security",
        *(f"drivers/{name}" for name in DRIVERS),
    ):
        if (modules / "kernel" / kind).exists():
            shutil.copytree(modules / "kernel" / kind, target / "kernel" / kind, ignore=_graphics)
    subprocess.run(["chroot", root, "depmod", "-a", kernel.release], check=True)


def _graphics(folder: str, names: list[str]) -> set[str]:
    """Of the graphics drivers only what all of them share."""
    return {name for name in names if not name.startswith("drm")} if folder.endswith("gpu/drm") else set()


def _settled(root: Path) -> None:
    """A machine that starts by itself: no question, no service that waits for a network."""
    (root / "etc/hostname").write_text("lab\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost lab\n")
    (root / "etc/machine-id").write_text("")
    (root / "etc/fstab").write_text("")
    for name in ("lab", "project"):
        (root / name).mkdir()
    shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)
    unit = root / "etc/systemd/system/lab-agent.service"
    unit.write_text((REPOSITORY / "lab/guest/lab-agent.service").read_text())
    wants = unit.parent / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / unit.name).symlink_to(f"../{unit.name}")
    for name in (
        "serial-getty@ttyS0.service",
        "serial-getty@ttyS1.service",
        "getty@tty1.service",
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "systemd-networkd-wait-online.service",
        "e2scrub_all.timer",
    ):
        link = root / "etc/systemd/system" / name
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")


def _image(folder: Path, image: Path, mib: int) -> None:
    # A hash of names that another kernel does not know makes a disk that it does not mount.
    words = [
        "-q",
        "-t",
        "ext4",
        "-m",
        "0",
        "-O",
        "^metadata_csum_seed,^orphan_file",
        "-E",
        "root_owner=0:0,lazy_itable_init=1",
    ]
    done = subprocess.run(
        ["/usr/sbin/mke2fs", *words, "-d", folder, image, f"{mib}M"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"{image.name}: {done.stderr.strip().splitlines()[-1]}")


def _mib(folder: Path) -> int:
    done = subprocess.run(
        ["du", "--summarize", "--block-size=1M", folder], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[0])

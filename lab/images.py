"""The guest's disks: a Debian root with the kernel's modules, and the project as it was built."""

import compileall
import os
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
# What mgpud is started with in a guest.
MORTAL = REPOSITORY / "lab/guest/mortal.c"
GUEST_PYTHON = {"bullseye": "3.9", "bookworm": "3.11", "trixie": "3.13", "sid": "3.14"}


def root_image(kernel: Kernel) -> Path:
    """The root disk: written to in copies of a guest's own only."""
    folder, packed = LAB / "guests" / kernel.release, " ".join(packages.guest_packages(kernel))
    listed = folder / "packages"
    if not listed.exists() or listed.read_text() != packed:
        with made_anew(folder) as new:
            (new / "packages").write_text(packed)
            own = packages.kernel_root(kernel)
            root = new / "root"
            packages.guest_root(kernel, root)
            print(f"lab: making the disk of {kernel.release}", flush=True)
            modules(root, own / "lib/modules" / kernel.release, own)
            _settled(root)
            image(root, new / "root.img", ROOT_MIB)
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
    disk = folder / "project.img"
    sources = [stamp, MORTAL, BUILD / "image/mgpu-test.tar", BUILD / "foreign/installed"]
    sources += (REPOSITORY / "tests/programs").rglob("*.[ch]")
    newest = max(path.stat().st_mtime for path in sources if path.exists())
    if not disk.exists() or disk.stat().st_mtime < newest:
        with made_anew(folder) as new:
            staged = new / "staged"
            staged.mkdir()
            try:
                tree.below(new, GUEST_PYTHON[suite]).rename(staged / "mgpu")
            except PortableError as error:
                raise LabError(str(error)) from error
            kit.programs(staged / "mgpu")
            kit.loadable(MORTAL, staged / "mgpu/programs/mortal.so")
            compiled(staged / "mgpu", GUEST_PYTHON[suite])
            for path, name in (
                (BUILD / "image/mgpu-test.tar", "mgpu-test.tar"),
                (BUILD / "image/rootfs", "rootfs"),
                (BUILD / "foreign/packages", "foreign"),
                (BUILD / "foreign/packages-550", "foreign-550"),
            ):
                if path.exists():
                    subprocess.run(["cp", "-a", "--reflink=auto", path, staged / name], check=True)
            image(staged, new / disk.name, mib(staged) * 5 // 4 + SPARE_MIB)
            shutil.rmtree(staged)
    return disk


def compiled(folder: Path, version: str) -> None:
    """For a guest with this Python; another one compiles what it imports, 20 s of its time for mgpud."""
    if sysconfig.get_python_version() == version:
        compileall.compile_dir(folder, quiet=2, workers=0)


def modules(root: Path, held: Path, tools: Path) -> None:
    """Those that a guest has a use for, in a root's lib/modules. held: the folder of all of that kernel's, by
    its release. tools: an unpacked root with kmod.
    """
    target = root / "lib/modules" / held.name
    target.mkdir(parents=True)
    for path in held.glob("modules.*"):
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
        if (held / "kernel" / kind).exists():
            shutil.copytree(held / "kernel" / kind, target / "kernel" / kind, ignore=_graphics)
    libraries = f"{tools}/lib/x86_64-linux-gnu:{tools}/usr/lib/x86_64-linux-gnu"
    loader = [f"{tools}/lib64/ld-linux-x86-64.so.2", "--argv0", "depmod", "--library-path", libraries]
    words = [*loader, f"{tools}/bin/kmod", "--basedir", os.fspath(root), "--all", held.name]
    subprocess.run(words, check=True)


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


def image(folder: Path, disk: Path, size_mib: int) -> None:
    """An ext4 file system with what is in `folder`, without mounting one."""
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
        ["/usr/sbin/mke2fs", *words, "-d", folder, disk, f"{size_mib}M"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"{disk.name}: {done.stderr.strip().splitlines()[-1]}")


def mib(folder: Path) -> int:
    done = subprocess.run(
        ["du", "--summarize", "--block-size=1M", folder], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[0])

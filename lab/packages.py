"""What Debian has: packages fetched by an apt below build/lab, and roots of them. Nothing is installed."""

import subprocess
from pathlib import Path

from lab.error import LabError
from lab.pairs import Driver, Kernel
from lab.places import LAB, made_anew
from tools.debian_archive import Archive, Unavailable
from tools.debian_root import DebianRootError, make

DRIVER_PACKAGE = "nvidia-open-kernel-dkms"
# What compiles a module in a root where no package is configured, and what a booting kernel is made of.
BUILDERS = ("bash", "coreutils", "sed", "grep", "mawk", "diffutils", "findutils", "make", "kmod", "xz-utils")
QEMU = ("qemu-system-x86", "qemu-utils", "seabios")
# A host for containers; its kernel comes from kernel_root().
GUEST = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "kmod",
    "procps",
    "iproute2",
    "iptables",
    "apparmor",
    "util-linux",
    "libatomic1",
    "python3",
    "runc",
    "containerd",
    "docker.io",
)
QEMU_SUITE = "trixie-backports"
# An archive keeps no version for ever.
CHOOSE = "choose another version in lab/pairs.py (QEMU's suite: lab/packages.py)"


def guest_packages(kernel: Kernel) -> tuple[str, ...]:
    """From trixie on docker.io is without its client."""
    return GUEST if kernel.guest == "bookworm" else (*GUEST, "docker-cli")


def driver_sources(driver: Driver) -> Path:
    """The folder with the driver's kernel half, as NVIDIA's package has it."""
    folder = LAB / "drivers" / driver.version
    if not folder.exists():
        print(f"lab: fetching the driver {driver.version} ({DRIVER_PACKAGE} of {driver.suite})", flush=True)
        with made_anew(folder) as new:
            _unpack(_fetched(driver, new), new)
    [sources] = (folder / "usr/src").glob("nvidia-current-open-*")
    return sources


def kernel_root(kernel: Kernel) -> Path:
    """The kernel, its headers and the compiler that it was made with."""
    words = (kernel.image, kernel.headers, kernel.compiler, *BUILDERS)
    return _root("kernels", kernel.release, kernel.suite, words)


def guest_root(kernel: Kernel, folder: Path) -> None:
    """A machine of that release: systemd, engines and Python, configured."""
    _make(folder, f"guest {kernel.release}", kernel.guest, guest_packages(kernel), "minbase")


def qemu_root() -> Path:
    return _root("qemu", "11", QEMU_SUITE, QEMU)


def _root(kind: str, name: str, suite: str, packages: tuple[str, ...]) -> Path:
    folder = LAB / kind / name
    if not folder.exists():
        _make(folder, f"{kind} {name}", suite, packages, "extract")
    return folder


def _make(folder: Path, what: str, suite: str, packages: tuple[str, ...], variant: str) -> None:
    print(f"lab: fetching {what}: {', '.join(packages[:3])} ... ({suite})", flush=True)
    try:
        make(suite, folder, packages, variant=variant)
    except DebianRootError as error:
        raise LabError(f"{what}: {_reason(str(error))}; {CHOOSE}") from error


def _fetched(driver: Driver, folder: Path) -> Path:
    archive = Archive(LAB / "apt" / driver.suite, "deb", (driver.suite,), "contrib")
    name = f"{DRIVER_PACKAGE}={driver.packaged}"
    try:
        mirror = archive.update()
    except Unavailable as error:
        raise LabError(str(error)) from error
    done = archive.run("apt-get", "--quiet", "download", name, cwd=folder)
    if done.returncode != 0:
        raise LabError(f"{mirror} has no {name} in {driver.suite}: {_reason(done.stderr)}; {CHOOSE}")
    [package] = folder.glob("*.deb")
    return package


def _unpack(package: Path, folder: Path) -> None:
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    package.unlink()


def _reason(said: str) -> str:
    """Of apt's errors the first: what mmdebstrap says after it is that apt has failed."""
    lines = said.splitlines()
    return next((line for line in lines if line.startswith("E: ")), lines[-1] if lines else "no word")

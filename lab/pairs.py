"""Which driver is tried on which kernel, and where Debian has both. A pair that does not compile is changed
here, never the driver.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from lab.error import LabError


@dataclass(frozen=True)
class Kernel:
    """suite: Debian's release, whose compiler builds; guest: that of the guest's root.

    image, headers: packages; release is what `uname -r` says. boot: words of its command line, besides.
    """

    release: str
    suite: str
    image: str
    compiler: str
    guest: str
    boot: str = ""

    @property
    def headers(self) -> str:
        return f"linux-headers-{self.release}"


@dataclass(frozen=True)
class Driver:
    """suite has nvidia-open-kernel-dkms in its component contrib, in the package's version `packaged`."""

    version: str
    suite: str
    packaged: str

    @property
    def branch(self) -> int:
        return int(self.version.partition(".")[0])


@dataclass(frozen=True)
class Pair:
    driver: Driver
    kernel: Kernel

    @property
    def name(self) -> str:
        return f"{self.driver.version}-{self.kernel.release}"


# 6.1.0-56 of bookworm-security, and trixie's 6.12.107 and 6.12.117, have another pci_resize_resource(), with
# which 550 does not compile.
LINUX_6_1 = Kernel("6.1.0-50-amd64", "bookworm", "linux-image-6.1.0-50-amd64-unsigned", "gcc-12", "bookworm")
# Its timer is set anew at each tick unless it is periodic, and in QEMU both processors lost theirs at times.
LINUX_6_12 = Kernel(
    "6.12.95+deb12-amd64",
    "bookworm-backports",
    "linux-image-6.12.95+deb12-amd64",
    "gcc-12",
    "trixie",
    boot="highres=off",
)

DRIVER_535 = Driver("535.261.03", "bookworm", "535.261.03-1")
DRIVER_550 = Driver("550.163.01", "trixie", "550.163.01-2")

# As modinfo reads it.
VERSION = re.compile(rb"\0version=([0-9.]+)\0")

# The first one is `make lab`'s.
PAIRS = (
    Pair(DRIVER_550, LINUX_6_1),
    Pair(DRIVER_535, LINUX_6_1),
    Pair(DRIVER_550, LINUX_6_12),
)


def with_driver(pair: Pair, modules: Path) -> Pair:
    """The pair's kernel, with the driver whose modules are in that folder."""
    try:
        said = VERSION.search((modules / "nvidia.ko").read_bytes())
    except OSError as error:
        raise LabError(f"{error.filename}: {error.strerror}") from error
    if not said:
        raise LabError(f"{modules / 'nvidia.ko'} does not say its version")
    return Pair(Driver(said[1].decode(), "", ""), pair.kernel)


def named(name: str) -> Pair:
    for pair in PAIRS:
        if pair.name == name:
            return pair
    raise LabError(f"{name} is no pair; there are {', '.join(pair.name for pair in PAIRS)}")

"""NVIDIA's kernel drivers as Debian's source packages have them, by an apt of our own below build."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import REPOSITORY
from tools.abi.history import NEEDED
from tools.debian_archive import Archive, Unavailable

PACKAGE = "nvidia-open-gpu-kernel-modules"
ROOT = REPOSITORY / "build" / "abi" / "debian"
_ARCHIVE = Archive(ROOT, "deb-src", ("bookworm", "trixie", "sid", "experimental"), "contrib")


@dataclass(frozen=True)
class Source:
    """A release as the archive has it: the driver's version, and those of the packages that are made of
    it."""

    driver: str
    packages: tuple[str, ...]


def served() -> list[Source]:
    """Every release that the archive has now. Unavailable: it has none, or does not answer."""
    (ROOT / "sources").mkdir(parents=True, exist_ok=True)
    mirror = _ARCHIVE.update()
    versions = re.findall(r"^Version: (\S+)$", _ARCHIVE.run("apt-cache", "showsrc", PACKAGE).stdout, re.M)
    if not versions:
        raise Unavailable(f"{mirror} does not answer, or has no {PACKAGE}")
    found: dict[str, tuple[str, ...]] = {}
    for package in versions:
        driver = re.sub(r"^\d+:|-[^-]*$", "", package)
        found[driver] = (*found.get(driver, ()), package)
    return [Source(driver, packages) for driver, packages in sorted(found.items())]


def _archive(source: Source) -> Path:
    """Any of the packages brings it; a mirror may lack the rest of one."""
    folder = ROOT / "sources"
    for package in source.packages:
        done = _ARCHIVE.run("apt-get", "source", "--tar-only", f"{PACKAGE}={package}", cwd=folder)
        archives = list(folder.glob(f"{PACKAGE}_{source.driver}.orig.tar.*"))
        if done.returncode == 0 and archives:
            return archives[0]
    raise Unavailable(f"{PACKAGE} {source.driver} cannot be had: {done.stderr.strip().splitlines()[0]}")


def headers(source: Source) -> Path:
    """The release's headers, from the package's upstream part, whose checksum apt has compared."""
    tree = ROOT / "trees" / source.driver
    if (tree / "version.mk").is_file():
        return tree
    archive = _archive(source)
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        parts = [f"*/{path}" for path in NEEDED]
        tar = ["tar", "-x", "-f", str(archive), "-C", folder, "--strip-components=1", "--wildcards", *parts]
        subprocess.run(tar, check=True)
        tree.parent.mkdir(exist_ok=True)
        Path(folder).rename(tree)
        # What the block removes at its end.
        Path(folder).mkdir()
    return tree

"""NVIDIA's kernel drivers as Debian's source packages have them, by an apt of our own below build."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import REPOSITORY
from tools.abi.history import NEEDED

PACKAGE = "nvidia-open-gpu-kernel-modules"
SUITES = ("bookworm", "trixie", "sid", "experimental")
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ROOT = REPOSITORY / "build" / "abi" / "debian"
# A mirror that does not answer is no mirror.
PATIENCE_S = 20


class Unavailable(Exception):
    """Why nothing can be compared."""


@dataclass(frozen=True)
class Source:
    """A release as the archive has it: the driver's version, and those of the packages that are made of
    it."""

    driver: str
    packages: tuple[str, ...]


def _mirror() -> str:
    """The one that this machine uses."""
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "".join(path.read_text() for path in places if path.is_file())
    found = re.search(r"^[^#\n]*?(https?://\S+/debian)/?(?:\s|$)", text, re.M)
    return found[1] if found else MIRROR


def _apt(program: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    options = {
        "Dir::Etc::sourcelist": ROOT / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::parts": "/dev/null",
        "Dir::State": ROOT / "state",
        "Dir::State::status": ROOT / "state/status",
        "Dir::Cache": ROOT / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Retries": 2,
        "Acquire::http::Timeout": PATIENCE_S,
        "Acquire::https::Timeout": PATIENCE_S,
    }
    said = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return subprocess.run([program, *said, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def served() -> list[Source]:
    """Every release that the archive has now. Unavailable: it has none, or does not answer."""
    if not KEYRING.is_file():
        raise Unavailable(f"{KEYRING} is missing: install debian-archive-keyring")
    for folder in ("state/lists/partial", "cache/archives/partial", "sources"):
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
    (ROOT / "state/status").touch()
    mirror = _mirror()
    (ROOT / "sources.list").write_text(
        "".join(f"deb-src [signed-by={KEYRING}] {mirror} {suite} contrib\n" for suite in SUITES)
    )
    # What was read before is used where the mirror does not answer.
    _apt("apt-get", "--quiet", "update")
    versions = re.findall(r"^Version: (\S+)$", _apt("apt-cache", "showsrc", PACKAGE).stdout, re.M)
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
        done = _apt("apt-get", "source", "--tar-only", f"{PACKAGE}={package}", cwd=folder)
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

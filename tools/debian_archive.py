"""Debian's archive by an apt of our own below build: packages of other releases, nothing installed."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# A mirror that does not answer is no mirror.
PATIENCE_S = 20


class Unavailable(Exception):
    """Why nothing can be had."""


def mirror() -> str:
    """The one that this machine uses."""
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "".join(path.read_text() for path in places if path.is_file())
    found = re.search(r"^[^#\n]*?(https?://\S+/debian)/?(?:\s|$)", text, re.M)
    return found[1] if found else MIRROR


@dataclass(frozen=True)
class Archive:
    """root: where this apt keeps everything. kind: "deb" or "deb-src"."""

    root: Path
    kind: str
    suites: tuple[str, ...]
    component: str

    def run(
        self, program: str, *arguments: str, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        options = {
            "Dir::Etc::sourcelist": self.root / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::State": self.root / "state",
            "Dir::State::status": self.root / "state/status",
            "Dir::Cache": self.root / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Retries": 2,
            "Acquire::http::Timeout": PATIENCE_S,
            "Acquire::https::Timeout": PATIENCE_S,
        }
        said = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return subprocess.run(
            [program, *said, *arguments], cwd=cwd or self.root, capture_output=True, text=True, check=False
        )

    def update(self) -> str:
        """Read what the archive has, or keep what was read before; its mirror's address.

        Unavailable: nothing on this machine can tell whether an archive is Debian's.
        """
        if not KEYRING.is_file():
            raise Unavailable(f"{KEYRING} is missing: install debian-archive-keyring")
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "state/status").touch()
        address = mirror()
        (self.root / "sources.list").write_text(
            "".join(
                f"{self.kind} [signed-by={KEYRING}] {address} {suite} {self.component}\n"
                for suite in self.suites
            )
        )
        self.run("apt-get", "--quiet", "update")
        return address

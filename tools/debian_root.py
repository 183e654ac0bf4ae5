"""A root of another Debian release in a folder: nothing of it is installed in this system.

    python -m tools.debian_root RELEASE FOLDER PACKAGE...

RELEASE is Debian's name of one, such as trixie or sid; trixie-backports: trixie with whatever backports has
newer; or experimental: sid with the packages named here from experimental where that has newer ones. The
packages and what they depend on are unpacked, and no more, unless --variant names one of mmdebstrap's whose
packages are configured, such as apt or minbase.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

UNPACKED = "extract"
EXPERIMENTAL = "experimental"
BACKPORTS = "-backports"
MIRROR = "http://deb.debian.org/debian"


class DebianRootError(Exception):
    """The root cannot be made; one line for each thing that mmdebstrap says of it."""


def make(release: str, folder: Path, packages: Sequence[str], *, variant: str = UNPACKED) -> None:
    """Make the root in `folder`, in place of what is there. As root."""
    new = folder.with_name(f"{folder.name}.new")
    for old in (new, folder):
        if old.exists():
            shutil.rmtree(old)
    new.parent.mkdir(parents=True, exist_ok=True)
    # Without --quiet, which leaves out what apt says of a package that it has not.
    words = ["mmdebstrap", f"--variant={variant}", f"--include={','.join(packages)}"]
    # A mirror may be weeks old; its signatures are checked all the same.
    options = ['--aptopt=Apt::Install-Recommends "false"', '--aptopt=Acquire::Check-Valid-Until "false"']
    done = subprocess.run(
        [*words, *options, *_origin(release, packages, new)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(new, ignore_errors=True)
        raise DebianRootError(f"debian_root: {release} cannot be had:\n{done.stdout.strip()}")
    new.rename(folder)


def _origin(release: str, packages: Sequence[str], folder: Path) -> Iterator[str]:
    # apt takes nothing from these by itself.
    if release == EXPERIMENTAL:
        base, archive, pinned, priority = "sid", EXPERIMENTAL, " ".join(packages), 990
    elif release.endswith(BACKPORTS):
        base, archive, pinned, priority = release.removesuffix(BACKPORTS), "stable-backports", "*", 500
    else:
        yield from (release, str(folder))
        return
    preferences = f"Package: {pinned}\\nPin: release a={archive}\\nPin-Priority: {priority}\\n"
    yield f"--setup-hook=printf '{preferences}' >\"$1/etc/apt/preferences\""
    yield from (base, str(folder), *(f"deb {MIRROR} {suite} main" for suite in (base, release)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.debian_root")
    parser.add_argument("--variant", default=UNPACKED)
    parser.add_argument("release")
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="+", metavar="package")
    told = parser.parse_args()
    try:
        make(told.release, told.folder, told.packages, variant=told.variant)
    except DebianRootError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

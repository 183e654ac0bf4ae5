"""Runs a command on the container engines of another Debian release.

    python -m tests.support.release ROOT COMMAND...
    python -m tests.support.release --unified ROOT COMMAND...

ROOT is made by tools.debian_root. In a mount namespace of the command's own its /usr and /etc lie over this
machine's: programs that it has are its, with their libraries and their helpers where they look for them, and
everything else is this machine's, mgpu too. What is written there goes to memory.

--unified: cgroups are one hierarchy for the command. Where controllers have hierarchies of their own, that
one freezes, kills and has device programs, which is what mgpu and runtimes need, and a runtime that is told
of another limit fails.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from mgpu_cli import kernel
from tests.support import commands, host

LAID_OVER = ("usr", "etc")
ENGINES = ("containerd", "dockerd", "podman", "runc", "crun", "criu")


def versions() -> dict[str, str]:
    """Of the engines' programs, as each says it."""
    said = {name: commands.run(name, "--version") for name in ENGINES}
    return {
        name: re.findall(r"\d+\.\d[\w.+~-]*", text)[-1 if name == "containerd" else 0]
        for name, text in said.items()
    }


def lay_over(root: Path) -> None:
    """Move this process, for good, into a mount namespace with the root's programs."""
    kernel.private_mounts()
    with tempfile.TemporaryDirectory() as memory:
        kernel.mount("tmpfs", Path(memory), "tmpfs")
        for name in LAID_OVER:
            changes, work = Path(memory, name), Path(memory, f"{name}.work")
            changes.mkdir()
            work.mkdir()
            layers = f"lowerdir={root / name}:/{name},upperdir={changes},workdir={work}"
            kernel.mount("overlay", Path("/", name), "overlay", data=layers)
        kernel.unmount(Path(memory))


def main() -> None:
    unified = sys.argv[1] == "--unified"
    root, *command = sys.argv[2 if unified else 1 :]
    enter(Path(root).absolute(), unified=unified)
    # This process still has this machine's libraries.
    os.execvp(command[0], command)


def enter(root: Path, *, unified: bool) -> None:
    if not (root / "usr").is_dir():
        sys.exit(f"release: {root} is no root of a release: make {root}.made")
    lay_over(root)
    if unified:
        kernel.mount("cgroup2", host.CGROUPS, "cgroup2")
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    print(f"engines of {root.name}{', unified cgroups' * unified}: {found}", flush=True)


if __name__ == "__main__":
    main()

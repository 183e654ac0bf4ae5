"""Engines' settings, written and taken away again, with what they are after each kept for comparison."""

from pathlib import Path

from lab.hosts.guest.commands import run

FOLDERS = ("/etc/docker", "/etc/containerd", "/etc/mgpu", "/usr/local/bin")
ENGINES = ("docker", "containerd")


def first() -> None:
    """Both states, once, on the disk before any cut."""
    Path("/etc/mgpu").mkdir(exist_ok=True)
    # A file of the administrator's, so that the folder stays.
    Path("/etc/mgpu/node.toml").write_text("# mine\n")
    taken_away()
    _keep("without")
    written()
    _keep("with")
    run("sync")


def written() -> None:
    run("mgpu", "install", *ENGINES)


def taken_away() -> None:
    run("mgpu", "uninstall", *ENGINES)


def _keep(name: str) -> None:
    kept = Path("/states") / name
    for folder in FOLDERS:
        (kept / folder[1:]).parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-a", folder, str(kept / folder[1:]))

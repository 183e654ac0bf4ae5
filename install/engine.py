"""What one engine needs to be known of it. Each engine has a file of its own with one of these in it."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from install.change import Target
from install.parts import Parts

Route = Literal["auto", "shim", "runc"]


@dataclass(frozen=True, kw_only=True)
class Intent:
    """What the operator chose. config: the engine's configuration file, None for its usual one.

    route: how containerd reaches us. hooks: podman by its precreate hook; None: as it is. bin_dir: where
    containerd finds shims, a folder on its PATH.
    """

    config: Path | None = None
    route: Route = "auto"
    hooks: bool | None = None
    bin_dir: Path = Path("/usr/local/bin")


def program_path(name: str) -> str | None:
    """Where an engine's program is on this machine."""
    # sudo and su leave the sbin folders out, where Debian has dockerd.
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


def _no_pidfile(intent: Intent) -> Path | None:
    return None


def always(*lines: str) -> Callable[[Intent], Sequence[str]]:
    """The same lines whatever the operator chose."""
    return lambda _wish: lines


_no_lines = always()


@dataclass(frozen=True, kw_only=True)
class Engine:
    """program: what is on PATH where the engine is installed; None: it is always there.

    restart: the lines that have a running one take the new configuration; undo: those after uninstalling, if
    they are others. pidfile: where the pid lies of an engine for which SIGHUP is enough. after: what to try
    then. limits: what cannot be had with it, in words.
    """

    name: str
    program: str | None
    config: Path
    targets: Callable[[Parts, Intent], Sequence[Target]]
    restart: tuple[str, ...]
    undo: tuple[str, ...] = ()
    pidfile: Callable[[Intent], Path | None] = _no_pidfile
    after: Callable[[Intent], Sequence[str]] = _no_lines
    limits: tuple[str, ...] = ()

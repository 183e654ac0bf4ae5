"""The table of engines."""

from __future__ import annotations

import os
import shutil

from install import containerd, crio, docker, podman, systemd
from install.engine import Engine

# systemd first: what the engines are pointed at reads a file that comes with it.
ENGINES = {
    engine.name: engine
    for engine in (systemd.ENGINE, docker.ENGINE, containerd.ENGINE, crio.ENGINE, podman.ENGINE)
}
ALL = "all"


def is_here(engine: Engine) -> bool:
    return engine.program is None or shutil.which(engine.program, path=_path()) is not None


def _path() -> str:
    # sudo and su leave the sbin folders out, where Debian has dockerd.
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"

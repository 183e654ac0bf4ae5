"""The table of engines."""

from install import containerd, crio, docker, podman, systemd
from install.engine import Engine, program_path

# systemd first: what the engines are pointed at reads a file that comes with it.
ENGINES = {
    engine.name: engine
    for engine in (systemd.ENGINE, docker.ENGINE, containerd.ENGINE, crio.ENGINE, podman.ENGINE)
}
ALL = "all"


def is_here(engine: Engine) -> bool:
    return engine.program is None or program_path(engine.program) is not None

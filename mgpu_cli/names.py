"""The names that Docker and podman have for containers, which they tell neither runtimes nor mgpud."""

import http.client
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from oci_specs.unix_http import DOCKER, TIMEOUT_S, docker_names

PODMAN_STATE = Path("/run/libpod")
# By id: an engine is asked again only where there is a container that it was not asked about.
_known: dict[str, str] = {}
# A command that runs for months meets more containers than there ever are at a time.
_KNOWN_MAX = 4096


def give(containers: list[dict[str, Any]]) -> None:
    """To each container without one, as its member `name`. An engine that does not answer gives none."""
    unnamed = [each for each in containers if not each["pod"]]
    if len(_known) > _KNOWN_MAX:
        _known.clear()
    for engine in (_docker, _podman):
        if any(each["container_id"] not in _known for each in unnamed):
            _known.update(engine())
    for each in unnamed:
        if name := _known.setdefault(each["container_id"], ""):
            each["name"] = name


def whose(name: str) -> str:
    """The id of the container that an engine calls so; else what was given."""
    for engine in (_docker, _podman):
        for container_id, known in engine().items():
            if known == name:
                return container_id
    return name


def aliases(name: str | None) -> set[str]:
    """What was given, and the id of the container that an engine calls so: one may bear the name of another's
    pod. Empty where nothing was given.
    """
    return set() if name is None else {name, whose(name)}


def _docker() -> dict[str, str]:
    """What happened to those that have ended is asked for by name, too."""
    path = os.environ.get("DOCKER_HOST", "").removeprefix("unix://") or DOCKER
    try:
        return docker_names(path)
    except (OSError, http.client.HTTPException, ValueError, TypeError, LookupError):
        return {}


def _podman() -> dict[str, str]:
    """Asked where it has containers: that takes a tenth of a second."""
    program = shutil.which("podman")
    if program is None or not PODMAN_STATE.is_dir():
        return {}
    argv = [program, "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)

"""The OCI runtimes below mgpu-runtime."""

import json
import re
from collections.abc import Iterator
from typing import Any

from mgpu_cli.doctor.finding import Finding, Group, fail, note, ok, warn
from mgpu_cli.doctor.host import Host, NoAnswerError
from mgpu_cli.runtime_files import CRIOS_FOLDER

# The first with listenerPath: runc 1.1.0, crun 0.20.
LEAST = {"runc": (1, 1), "crun": (0, 20)}
NOTIFY = "SCMP_ACT_NOTIFY"


def _version(printed: str) -> tuple[int, int] | None:
    found = re.search(r"version v?(\d+)\.(\d+)", printed)
    return (int(found[1]), int(found[2])) if found else None


def _one(host: Host, name: str, path: str) -> Iterator[Finding]:
    id = f"runtime-{name}"
    try:
        printed = host.run([path, "--version"])
    except NoAnswerError as error:
        yield warn(id, f"{name}: {error}", "", f"{path} --version")
        return
    found = _version(printed)
    first = printed.splitlines()[0] if printed.strip() else name
    if found is None:
        yield note(id, f"{path} says no version that is known here")
    elif found < LEAST[name]:
        least = ".".join(map(str, LEAST[name]))
        yield fail(
            id,
            f"{first} is older than {least}",
            "it has no seccomp listeners, without which nothing is started",
            f"install {name} {least} or newer",
        )
    else:
        yield ok(id, first)
        yield from _features(host, name, path, printed)


def _features(host: Host, name: str, path: str, version: str) -> Iterator[Finding]:
    """Whether it was built with seccomp. Older ones have no `features`: crun then says it with its
    version."""
    id = f"runtime-{name}-seccomp"
    without = fail(
        id, f"{name} was built without seccomp listeners", "", f"install a {name} with libseccomp 2.5"
    )
    try:
        told: Any = json.loads(host.run([path, "features"]))
        seccomp = told["linux"]["seccomp"]
        if not seccomp.get("enabled") or NOTIFY not in seccomp.get("actions", []):
            yield without
    except NoAnswerError:
        if name == "crun" and "+SECCOMP" not in version:
            yield without
    except (ValueError, KeyError, TypeError, AttributeError):
        yield note(id, f"{path} features says nothing of seccomp")


def _of_crios(host: Host, name: str) -> str | None:
    path = f"{CRIOS_FOLDER}/{name}"
    return path if host.is_program(path) else None


def installed(host: Host) -> Iterator[Finding]:
    found = {name: path for name in LEAST if (path := host.which(name) or _of_crios(host, name))}
    if not found:
        yield fail("runtime-none", "neither runc nor crun is installed", "", "apt-get install runc")
    for name, path in found.items():
        yield from _one(host, name, path)
    hybrid = host.path("/sys/fs/cgroup/unified").is_dir() and host.path("/sys/fs/cgroup/memory").is_dir()
    if "crun" in found and hybrid:
        yield note(
            "runtime-crun-cgroups",
            "crun refuses cgroups in the hybrid layout, which this node has",
            "containers of podman's that use crun do not start, with or without mgpu",
            "podman --runtime runc",
        )


GROUP = Group("runtimes", (installed,))

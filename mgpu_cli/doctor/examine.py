"""Makes all checks at once, in a bounded time, and whatever goes wrong in one is a finding too."""

import threading
import time
from collections.abc import Sequence

from mgpu_cli.doctor import (
    arbiter,
    cdi,
    containerd,
    crio,
    docker,
    driver,
    kernel,
    kubelet,
    leftovers,
    permissions,
    podman,
    runtimes,
    start,
)
from mgpu_cli.doctor.finding import Finding, Group, Level, warn
from mgpu_cli.doctor.host import Host

GROUPS = (
    start.GROUP,
    kernel.GROUP,
    runtimes.GROUP,
    docker.GROUP,
    containerd.GROUP,
    podman.GROUP,
    crio.GROUP,
    cdi.GROUP,
    driver.GROUP,
    kubelet.GROUP,
    arbiter.GROUP,
    permissions.GROUP,
    leftovers.GROUP,
)
# Each question has a shorter time-out of its own, and a group may ask several that nobody answers; this one
# is for unforeseen delays.
DEADLINE_S = 10.0


def examine(
    host: Host, groups: Sequence[Group] = GROUPS, deadline_s: float = DEADLINE_S
) -> dict[str, list[Finding]]:
    """The findings by group. One that is not ready in time has what it found until then, and a finding that
    says so.

    Threads that hang are left behind: they end with the command.
    """
    found: dict[str, list[Finding]] = {group.name: [] for group in groups}
    threads = [
        threading.Thread(target=_make, args=(host, group, found[group.name]), daemon=True)
        for group in groups
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + deadline_s
    late = []
    for group, thread in zip(groups, threads, strict=True):
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            late.append(group.name)
    result = {name: list(findings) for name, findings in found.items()}
    for name in late:
        result[name].append(
            warn(
                f"{name}-late",
                f"the checks of {name} were not ready within {deadline_s} s",
                "",
                "mgpu doctor",
            )
        )
    return result


def _make(host: Host, group: Group, findings: list[Finding]) -> None:
    for check in group.checks:
        try:
            for finding in check(host):
                findings.append(finding)
        except Exception as error:  # a node that no check has thought of must not hide what the others see
            name = f"{group.name}-{check.__name__}".replace("_", "-")
            findings.append(
                warn(f"{name}-failed", f"the check {name} failed: {type(error).__name__}: {error}")
            )


def worst(found: dict[str, list[Finding]]) -> Level:
    return max((each.level for findings in found.values() for each in findings), default=Level.OK)

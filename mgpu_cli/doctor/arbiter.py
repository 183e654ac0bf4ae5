"""mgpud: whether it answers, and how well it can do its work."""

import os
import shlex
from collections.abc import Iterator
from pathlib import PurePath

from mgpu_cli import render
from mgpu_cli.doctor.finding import Finding, Group, fail, ok, warn
from mgpu_cli.doctor.host import Host
from mgpu_cli.doctor.processes import CAP_SYS_NICE, capabilities, limit

# Of each second, more than the scheduler's thread takes: over its budget it would not run at all for a while.
BUDGET_US = 500_000


def answers(host: Host) -> Iterator[Finding]:
    health = host.health
    if isinstance(health, str):
        return  # said of the start
    yield ok(
        "mgpud-answers",
        f"mgpud answers, pid {health['pid']}, {health['containers']} containers on {health['cards']} GPUs",
    )
    yield ok(
        "mgpud-probes",
        f"work is looked for every {health['poll_fast_us']} µs where online is idle beside running offline, and the "
        f"hold is {health['hold_ms']} ms",
    )
    for container in health.get("lost", ()):
        yield fail(
            "mgpud-lost",
            render.lost(container),
            "mgpud does not know what it holds of the GPUs",
            f"end {container} with its engine, such as docker rm --force {container}",
        )
    for row in health.get("chips", ()):
        yield ok(
            "mgpud-chip",
            f"chip {row['chip']} (GPU {', '.join(map(str, row['cards']))}): work seen by {row['work']}; idle seen by "
            f"{row['idle']}; suspended by {row['suspended']}; source: {row['source']}",
        )
    for line in health.get("without", ()):
        what, _, so = line.partition(": ")
        status = what.startswith("engine-status")
        yield warn(
            "mgpud-without",
            what,
            so,
            "see that root may map the GPU's registers and open /dev/nvidia-caps/*, and restart mgpud; of an unknown "
            "chip docs/coverage.md has no row"
            if status
            else "see driver-without in mgpud's log for what the driver said, and docs/nvidia-driver.md",
        )


def realtime(host: Host) -> Iterator[Finding]:
    """A scheduler's thread that waits for a CPU is online waiting for its card."""
    health = host.health
    if isinstance(health, str):
        return
    if health["sched_fifo"]:
        yield ok("mgpud-fifo", "its scheduler runs under SCHED_FIFO")
        return
    why, line = _why_not(host, health["pid"])
    yield warn(
        "mgpud-fifo",
        f"its scheduler does not run under SCHED_FIFO: {why}",
        "on a busy node online work waits longer for its GPU",
        line,
    )


def _why_not(host: Host, pid: int) -> tuple[str, str]:
    """The reason, and what to type or to give it."""
    held = capabilities(host, pid)
    if held is not None and not held >> CAP_SYS_NICE & 1 and limit(host, pid, "Max realtime priority") == 0:
        return (
            "it has no CAP_SYS_NICE, and its realtime priority is limited to 0",
            "give mgpud CAP_SYS_NICE, or LimitRTPRIO=20 in its unit, and restart it",
        )
    if host.number("/proc/sys/kernel/sched_rt_runtime_us") == 0:
        return (
            "kernel.sched_rt_runtime_us is 0",
            "sysctl -w kernel.sched_rt_runtime_us=950000, and restart mgpud",
        )
    for line in (host.text(f"/proc/{pid}/cgroup") or "").splitlines():
        _number, controllers, path = line.split(":", 2)
        files = _budget_files(path) if "cpu" in controllers.split(",") else []
        if files and host.number(files[-1]) == 0:
            given = [f"echo {BUDGET_US} > {shlex.quote(file)}" for file in files if host.number(file) == 0]
            return (
                f"its cgroup {path} has no realtime budget (cpu.rt_runtime_us is 0)",
                f"{' && '.join(given)} and restart mgpud there",
            )
    return "the kernel refused it", "chrt --fifo 1 true"


def _budget_files(path: str) -> list[str]:
    """Of a cgroup of the first version and those above it, the topmost first: none gets a budget before its
    parent has one.
    """
    top = PurePath("/sys/fs/cgroup/cpu")
    group = PurePath(os.path.normpath(f"{top}{path}"))
    return [f"{each}/cpu.rt_runtime_us" for each in (*reversed(group.parents), group) if top in each.parents]


GROUP = Group("mgpud", (answers, realtime))

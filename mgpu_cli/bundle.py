"""The OCI spec of a container that `mgpu run` starts."""

from collections.abc import Mapping, Sequence
from typing import Any

# What Docker gives a container without --cap-add.
CAPABILITIES = (
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MASKED = (
    "acpi",
    "asound",
    "kcore",
    "keys",
    "latency_stats",
    "timer_list",
    "timer_stats",
    "sched_debug",
    "scsi",
)
READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")


def spec(
    *,
    container_id: str,
    rootfs: str,
    args: Sequence[str],
    env: Mapping[str, str],
    annotations: Mapping[str, str],
    terminal: bool,
) -> dict[str, Any]:
    """An OCI 1.0 spec with the namespaces, capabilities and /dev that Docker gives; no network but loopback.

    There is no linux.seccomp here: what mgpu-runtime adds for the NVIDIA calls is the only filter.
    """
    environment = {"TERM": "xterm", **env}
    return {
        "ociVersion": "1.0.2",
        "hostname": container_id,
        "annotations": dict(annotations),
        "process": {
            "terminal": terminal,
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": [PATH, *(f"{key}={value}" for key, value in environment.items())],
            "cwd": "/",
            "capabilities": {kind: list(CAPABILITIES) for kind in ("bounding", "effective", "permitted")},
            "noNewPrivileges": True,
        },
        "root": {"path": rootfs, "readonly": False},
        "mounts": _mounts(),
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "cgroupsPath": f"/mgpu-{container_id}",
            # The runtime adds the standard nodes (null, zero, random, tty, ptmx …) to this on its own.
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "maskedPaths": [*(f"/proc/{name}" for name in MASKED), "/sys/firmware"],
            "readonlyPaths": [f"/proc/{name}" for name in READ_ONLY],
        },
    }


def _mounts() -> list[dict[str, Any]]:
    strict = ["nosuid", "noexec", "nodev"]
    return [
        _mount("/proc", "proc", strict),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount(
            "/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
        ),
        _mount("/dev/shm", "tmpfs", [*strict, "mode=1777", "size=65536k"]),
        _mount("/dev/mqueue", "mqueue", strict),
        _mount("/sys", "sysfs", [*strict, "ro"]),
        _mount("/sys/fs/cgroup", "cgroup", [*strict, "relatime", "ro"]),
    ]


def _mount(destination: str, kind: str, options: list[str]) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": options}

"""What mgpud and the engines must be allowed to do, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from mgpu_cli.doctor.finding import Finding, Group, fail, note, ok, warn
from mgpu_cli.doctor.host import Host
from mgpu_cli.doctor.processes import CAP_KILL, CAP_SYS_ADMIN, CAP_SYS_PTRACE, capabilities, limit

NEEDED = {
    CAP_SYS_PTRACE: ("CAP_SYS_PTRACE", "it fetches containers' open files and reads their calls"),
    CAP_SYS_ADMIN: ("CAP_SYS_ADMIN", "it answers for containers that are in namespaces of their own"),
    CAP_KILL: ("CAP_KILL", "it ends a container that gets past its cap"),
}
# A tenant may have so many open files of the driver, each a descriptor of mgpud's and a watch of epoll's.
FILES_PER_TENANT = 4096
NAMESPACES = ("mnt", "pid", "ipc", "uts", "net")


def root(host: Host) -> Iterator[Finding]:
    if host.uid != 0:
        yield warn(
            "permissions-root",
            "mgpu doctor does not run as root",
            "it sees less than there is, and mgpud speaks with root only",
            "sudo mgpu doctor",
        )


def held(host: Host) -> Iterator[Finding]:
    """Capabilities and limits of mgpud itself."""
    if isinstance(host.health, str):
        return
    pid = host.health["pid"]
    has = capabilities(host, pid)
    if has is None:
        return
    missing = {name: why for bit, (name, why) in NEEDED.items() if not has >> bit & 1}
    for name, why in missing.items():
        yield fail(
            f"permissions-{name.lower().replace('_', '-')}",
            f"mgpud runs without {name}",
            why,
            f"add {name} to CapabilityBoundingSet in its unit, or to the container it runs in",
        )
    if not missing:
        yield ok("permissions-capabilities", "mgpud has the capabilities that it needs")
    files = limit(host, pid, "Max open files")
    if files is not None and files < FILES_PER_TENANT:
        yield warn(
            "permissions-files",
            f"mgpud may have {files} open files",
            f"one container may need {FILES_PER_TENANT}; where they run out, its NVIDIA files cannot be opened",
            "LimitNOFILE=1048576 in its unit, then restart it",
        )


def confined(host: Host) -> Iterator[Finding]:
    """AppArmor lets an unconfined process look into a container, whatever the container's profile says."""
    if isinstance(host.health, str):
        return
    label = (host.text(f"/proc/{host.health['pid']}/attr/apparmor/current") or "").strip()
    if label and label.split()[0] != "unconfined":
        yield warn(
            "permissions-apparmor",
            f"AppArmor confines mgpud to the profile {label}",
            "unless it has ptrace with the containers' profiles as peers, GPU calls fail with EPERM",
            "run mgpud unconfined",
        )


def noexec(host: Host) -> Iterator[Finding]:
    """mgpu-runtime is a script below the state directory, which the kernel must be willing to run."""
    mounted = _mount_of(host, PurePath(host.state.path))
    if mounted and "noexec" in mounted[1].split(","):
        yield fail(
            "permissions-noexec",
            f"{mounted[0]} is mounted noexec, and mgpu-runtime runs from {host.state.path}",
            "no container that asks for a GPU starts",
            f"mount -o remount,exec {mounted[0]}",
        )


def _mount_of(host: Host, path: PurePath) -> tuple[str, str] | None:
    """(mount point, options) of what `path` lies on."""
    best: tuple[str, str] | None = None
    for line in (host.text("/proc/self/mounts") or "").splitlines():
        words = line.split(" ")
        if (
            len(words) > 3
            and path.is_relative_to(words[1])
            and len(words[1]) >= len(best[0] if best else "")
        ):
            best = words[1], words[3]
    return best


def kernel_limits(host: Host) -> Iterator[Finding]:
    watches = host.number("/proc/sys/fs/epoll/max_user_watches")
    if watches is not None and watches < 16 * FILES_PER_TENANT:
        yield warn(
            "permissions-epoll",
            f"fs.epoll.max_user_watches is {watches}",
            "each open file of a container's takes one; where they run out, new ones are refused",
            "sysctl -w fs.epoll.max_user_watches=1048576",
        )
    for name in NAMESPACES:
        key = f"user.max_{name}_namespaces"
        if host.number(f"/proc/sys/{key.replace('.', '/')}") == 0:
            yield fail(
                "permissions-namespaces", f"{key} is 0", "no container starts", f"sysctl -w {key}=65536"
            )
    if host.number("/proc/sys/user/max_user_namespaces") == 0:
        yield note(
            "permissions-user-namespaces",
            "user.max_user_namespaces is 0",
            "rootless and user-namespaced containers do not start; mgpu needs none",
        )


GROUP = Group("permissions", (root, held, confined, noexec, kernel_limits))

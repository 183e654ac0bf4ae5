"""What mgpud and the engines must be allowed to do, and how much of it."""

from collections.abc import Iterator

from mgpu_cli.doctor.finding import Finding, Group, fail, note, warn
from mgpu_cli.doctor.host import Host
from mgpu_cli.doctor.processes import limit

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
    """The limits of mgpud itself."""
    if isinstance(host.health, str):
        return
    pid = host.health["pid"]
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


GROUP = Group("permissions", (root, held, confined, kernel_limits))

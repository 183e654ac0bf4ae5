"""What the kernel has and allows."""

import errno
import os
import re
from collections.abc import Iterator

from mgpu_cli.doctor.finding import Finding, Group, fail, note, ok, warn
from mgpu_cli.doctor.host import Host

# pidfd_getfd came last of what nothing goes without: 5.6. CONTINUE is safe to use from 5.5.
LEAST = (5, 6)
# SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
SYNCHRONOUS = (6, 6)
# Where native_sched/nvidia/driver/nvidia/guard pins its program and its map.
GUARD = "/sys/fs/bpf/mgpu"
RECEIVE = f"{GUARD}/receive"
NEEDED = {
    "seccomp-notify": "CONFIG_SECCOMP_FILTER: every NVIDIA call of a container is answered through it",
    "pidfd_getfd": "a container's calls are made on its own open files, which are fetched by it",
    "kcmp": "CONFIG_KCMP: tells whose open file a descriptor is",
    "fanotify": "CONFIG_FANOTIFY: tells that a file of nvidia-uvm has ended",
    "process_vm_readv": "CONFIG_CROSS_MEMORY_ATTACH: a call's arguments are read by it",
}


def release(host: Host) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", host.text("/proc/sys/kernel/osrelease") or "")
    return (int(found[1]), int(found[2])) if found else None


def version(host: Host) -> Iterator[Finding]:
    text = (host.text("/proc/sys/kernel/osrelease") or "").strip()
    found = release(host)
    if found is None:
        yield warn("kernel-version", "the kernel's version cannot be read", "", "uname -r")
    elif found < LEAST:
        yield fail("kernel-version", f"kernel {text} is older than 5.6", "it lacks pidfd_getfd", "uname -r")
    elif found < SYNCHRONOUS:
        yield note(
            "kernel-sync-wake-up",
            f"kernel {text} lacks the synchronous wake-up of seccomp listeners (6.6)",
            "each mediated call takes about 45 µs instead of about 10; work that is submitted is not affected",
        )
    else:
        yield ok("kernel-version", f"kernel {text}")


def calls(host: Host) -> Iterator[Finding]:
    for name, why in NEEDED.items():
        error = host.syscall(name)
        id = f"kernel-{name.replace('_', '-')}"
        if error == 0:
            yield ok(id, f"{name} works")
        elif error == errno.ENOSYS:
            yield fail(id, f"the kernel has no {name}", why, "run a kernel that has it")
        else:
            yield fail(
                id,
                f"{name} is refused: {os.strerror(error)}",
                why,
                "run mgpu doctor as root on the host, outside containers",
            )


def actions(host: Host) -> Iterator[Finding]:
    available = (host.text("/proc/sys/kernel/seccomp/actions_avail") or "").split()
    if available and "user_notif" not in available:
        yield fail(
            "kernel-user-notif",
            "seccomp has no user_notif",
            NEEDED["seccomp-notify"],
            "run a kernel that has it",
        )


def ptrace(host: Host) -> Iterator[Finding]:
    """pidfd_getfd, process_vm_readv and kcmp ask for the right to ptrace, which security modules may
    refuse."""
    if host.number("/proc/sys/kernel/yama/ptrace_scope") == 3:
        yield fail(
            "kernel-ptrace-scope",
            "Yama forbids ptrace to everyone (ptrace_scope 3)",
            "and with it pidfd_getfd: no call of a container can be served until the next boot",
            "set kernel.yama.ptrace_scope to 2 or less in /etc/sysctl.d, then reboot",
        )
    if (host.text("/sys/fs/selinux/enforce") or "").strip() == "1":
        yield note(
            "kernel-selinux",
            "SELinux is enforcing",
            "its policy must let mgpud ptrace containers",
            "ausearch -m avc -c mgpud",
        )
    if "bpf" in (host.text("/sys/kernel/security/lsm") or "").strip().split(","):
        yield note(
            "kernel-bpf-lsm",
            "BPF programs may decide on ptrace here",
            "where one refuses it to mgpud, GPU calls fail with EPERM",
            "bpftool prog list | grep -w lsm",
        )
        yield from received(host)
    else:
        yield ok(
            "kernel-file-receive",
            "containers' open files are not kept from other processes (bpf is not in the kernel's lsm=)",
            "mgpud finds a process without a grant that has one, and ends the container",
        )


def received(host: Host) -> Iterator[Finding]:
    is_pinned = host.is_there(RECEIVE)
    if is_pinned is None:
        yield note(
            "kernel-file-receive",
            "only root sees whether containers' open files are kept from other processes",
            "the kernel's file system of BPF programs is closed to others",
            "run mgpu doctor as root",
        )
    elif is_pinned:
        yield ok("kernel-file-receive", "a process without a grant cannot receive a container's open files")
    elif host.driver == "nvidia" and isinstance(host.health, dict):
        yield warn(
            "kernel-file-receive",
            "a process without a grant can receive a container's open files, which this kernel could prevent",
            f"mgpud has pinned no program at {RECEIVE}",
            "mgpu logs",
        )


GROUP = Group("kernel", (version, calls, actions, ptrace))

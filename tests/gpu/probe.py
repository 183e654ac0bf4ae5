"""What the machine can do, before anything is tried: the first result of a run."""

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

from tests.gpu.backend import driver_version, find
from tests.gpu.results import Result, Results

SYS_SECCOMP, GET_NOTIF_SIZES, PIDFD_GETFD, KCMP = 317, 3, 438, 312
NAMESPACES = {"mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000}
SHOWN = (
    "ls -l /dev/nvidia* /dev/nvidia-caps",
    "cat /proc/driver/nvidia/version /proc/driver/nvidia/params",
    "grep -E 'Cap|NoNewPrivs|Seccomp' /proc/self/status",
    "cat /proc/sys/kernel/yama/ptrace_scope",
    "stat -f -c %T /sys/fs/cgroup",
    "ldconfig -p | grep -E 'libcuda|nvidia-ml'",
    "nvidia-smi",
    "nvidia-smi -q -d MEMORY,UTILIZATION,CLOCK",
    "dmesg | grep -iE 'nvrm|xid' | tail -30",
)


def _can(flag: int) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(ctypes.CDLL(None).unshare(flag) and 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def probe(results: Results, out: Result) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    sizes = (ctypes.c_uint16 * 3)()
    own = os.pidfd_open(os.getpid())
    got = libc.syscall(PIDFD_GETFD, own, 0, 0)
    for fd in (own, got):
        if fd >= 0:
            os.close(fd)
    bars = sorted(Path("/sys/bus/pci/drivers/nvidia").glob("*/resource0"))
    out.figures = {
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "machine_python": _said("python3 --version"),
        "driver": driver_version(),
        "seccomp_notify": libc.syscall(SYS_SECCOMP, GET_NOTIF_SIZES, 0, sizes) == 0,
        "pidfd_getfd": got >= 0,
        "kcmp": libc.syscall(KCMP, os.getpid(), os.getpid(), 0, 0, 0) == 0,
        "namespaces": {name: _can(flag) for name, flag in NAMESPACES.items()},
        "runtimes": {name: find(name) for name in ("runc", "crun")},
        "resource0_readable": [os.access(bar, os.R_OK) for bar in bars],
        "cgroup2": os.path.exists("/sys/fs/cgroup/cgroup.controllers"),
    }
    for command in SHOWN:
        results.log(f"$ {command}\n{_said(command)}")
    needed = ("seccomp_notify", "pidfd_getfd", "kcmp")
    missing = [name for name in needed if not out.figures[name]]
    out.verdict = "ok" if not missing else f"missing: {', '.join(missing)}"


def _said(command: str) -> str:
    try:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=15)
    except subprocess.TimeoutExpired:
        return "(no answer)"
    return (done.stdout + done.stderr).strip()

"""Asks the kernel whether it has what the arbiter calls. Nothing is changed by asking."""

import ctypes
import os

# x86-64 and arm64 differ in these; pidfd_getfd is 438 everywhere.
_NUMBERS = {
    "x86_64": {"seccomp": 317, "kcmp": 312, "process_vm_readv": 310},
    "aarch64": {"seccomp": 277, "kcmp": 272, "process_vm_readv": 270},
}
_PIDFD_GETFD = 438
_SECCOMP_GET_NOTIF_SIZES = 3
_KCMP_FILE = 0

_FAN_CLOEXEC, _FAN_REPORT_TID, _FAN_MARK_ADD, _FAN_CLOSE = 0x1, 0x100, 0x1, 0x18
_AT_FDCWD = -100

NAMES = ("seccomp-notify", "pidfd_getfd", "kcmp", "fanotify", "process_vm_readv")


def probe(name: str) -> int:
    """0: the kernel has it and lets us; else the errno that it gives for a call that would do."""
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = _NUMBERS[os.uname().machine]
    pid = os.getpid()
    zero = ctypes.c_long(0)
    if name == "seccomp-notify":
        sizes = (ctypes.c_uint16 * 3)()
        arguments = (numbers["seccomp"], _SECCOMP_GET_NOTIF_SIZES, zero, ctypes.byref(sizes))
        return 0 if libc.syscall(*arguments) >= 0 else ctypes.get_errno()
    if name == "kcmp":
        done = libc.syscall(
            numbers["kcmp"], ctypes.c_long(pid), ctypes.c_long(pid), ctypes.c_long(_KCMP_FILE), zero, zero
        )
        return 0 if done >= 0 else ctypes.get_errno()
    if name == "fanotify":
        group = libc.fanotify_init(_FAN_CLOEXEC | _FAN_REPORT_TID, os.O_RDONLY)
        if group < 0:
            return ctypes.get_errno()
        marked = libc.fanotify_mark(
            group, _FAN_MARK_ADD, ctypes.c_uint64(_FAN_CLOSE), _AT_FDCWD, os.fsencode("/dev/null")
        )
        error = 0 if marked == 0 else ctypes.get_errno()
        os.close(group)
        return error
    if name == "process_vm_readv":
        done = libc.syscall(numbers[name], ctypes.c_long(pid), None, zero, None, zero, zero)
        return 0 if done >= 0 else ctypes.get_errno()
    pidfd = os.pidfd_open(pid)
    descriptor = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    try:
        got = libc.syscall(_PIDFD_GETFD, ctypes.c_long(pidfd), ctypes.c_long(descriptor), zero)
        if got < 0:
            return ctypes.get_errno()
        os.close(got)
        return 0
    finally:
        os.close(descriptor)
        os.close(pidfd)

"""The few system calls that Python 3.11 does not wrap."""

import ctypes
import errno
import os
from pathlib import Path

# linux/prctl.h, linux/sched.h, linux/mount.h
PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x00020000
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent(signal_number: int, parent: int) -> None:
    """Have the kernel send this process signal_number when its parent ends; exit if `parent` is gone."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def private_mounts() -> None:
    """Give this process its own mount namespace: only its children see its mounts, which go with them."""
    _checked(_libc.unshare(CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)


def mount(source: str, target: Path, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    _checked(
        _libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, data.encode()),
        f"mount {kind or source} on {target}",
    )


def unmount(target: Path) -> None:
    """Take what is mounted at target away, as soon as it is not in use; nothing if it is no mount point."""
    # Asked of the kernel itself: os.path.ismount does not see a folder that is mounted on itself, as engines
    # do it.
    result = _libc.umount2(os.fsencode(target), MNT_DETACH | UMOUNT_NOFOLLOW)
    if result != 0 and ctypes.get_errno() not in (errno.EINVAL, errno.ENOENT):
        _checked(result, f"umount {target}")

"""A program under what its unit takes from it: capabilities and system calls, as systemd would.

python -m tests.support.hardened UNIT PROGRAM [ARGUMENT...]
"""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

ALLOW = 0x7FFF0000
EPERM = 0x00050001
PR_SET_NO_NEW_PRIVS = 38


def settings(unit: Path) -> dict[str, str]:
    """Name and value of each setting; of several with one name the last."""
    found = (re.fullmatch(r"(\w+)=(.*)", line) for line in unit.read_text().splitlines())
    return {match[1]: match[2] for match in found if match}


def calls(groups: list[str]) -> set[str]:
    """The system calls that are named, those of systemd's groups, and of groups in these."""
    found = {name for name in groups if not name.startswith("@")}
    # systemd's own programs speak to it too, and here nothing reads that many messages.
    env = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    pending = [name for name in groups if name.startswith("@")]
    while pending:
        shown = subprocess.check_output(
            ["systemd-analyze", "syscall-filter", pending.pop()], text=True, env=env
        )
        words = [line.strip() for line in shown.splitlines()[1:]]
        found.update(word for word in words if word and not word.startswith(("#", "@")))
        pending += [word for word in words if word.startswith("@")]
    return found


def allow_only(names: set[str]) -> None:
    """Have the kernel refuse every other call of this process, for good."""
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(EPERM)))
    # systemd's @default holds what every program needs.
    for name in sorted(names):
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            lib.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), number, 0)
    if lib.seccomp_load(context) != 0:
        raise OSError("the filter was not loaded")


def bounding(capabilities: str) -> list[str]:
    """Arguments of setpriv."""
    kept = [f"+{name.removeprefix('CAP_').lower()}" for name in capabilities.split()]
    return [f"--bounding-set={','.join(['-all', *kept])}", "--inh-caps=-all", "--no-new-privs"]


def main() -> None:
    unit, *argv = sys.argv[1:]
    told = settings(Path(unit))
    names = calls(["@default", *told["SystemCallFilter"].split()])
    allow_only(names)
    os.execvp("setpriv", ["setpriv", *bounding(told["CapabilityBoundingSet"]), *argv])


if __name__ == "__main__":
    main()

"""OCI seccomp profiles through the installed libseccomp, the way runc and crun drive it: the oracle of the
rewrite.
"""

import ctypes
import os
from typing import Any

from oci_specs.seccomp import program as bpf

ACTIONS = {
    "SCMP_ACT_KILL": 0x00000000,
    "SCMP_ACT_KILL_THREAD": 0x00000000,
    "SCMP_ACT_KILL_PROCESS": 0x80000000,
    "SCMP_ACT_TRAP": 0x00030000,
    "SCMP_ACT_ERRNO": 0x00050000,
    "SCMP_ACT_NOTIFY": 0x7FC00000,
    "SCMP_ACT_TRACE": 0x7FF00000,
    "SCMP_ACT_LOG": 0x7FFC0000,
    "SCMP_ACT_ALLOW": 0x7FFF0000,
}
ACTION_MASK = 0xFFFF0000
ALLOW, NOTIFY = ACTIONS["SCMP_ACT_ALLOW"], ACTIONS["SCMP_ACT_NOTIFY"]
# The call is made, at once or once a tracer agrees.
PERMISSIVE = frozenset(ACTIONS["SCMP_ACT_" + name] for name in ("TRACE", "LOG", "ALLOW"))
ERRNO_EPERM = ACTIONS["SCMP_ACT_ERRNO"] | 1
ERRNO_ENOSYS = ACTIONS["SCMP_ACT_ERRNO"] | 38

OPERATORS = {"NE": 1, "LT": 2, "LE": 3, "EQ": 4, "GE": 5, "GT": 6, "MASKED_EQ": 7}
# The audit architecture, and the value that libseccomp knows the ABI by (x32 has one of its own).
AUDIT_X86_64 = 0xC000003E
AUDIT_X86 = 0x40000003
SCMP_X32 = 0x4000003E
ARCHITECTURES = {"SCMP_ARCH_X86_64": AUDIT_X86_64, "SCMP_ARCH_X86": AUDIT_X86, "SCMP_ARCH_X32": SCMP_X32}
X32_BIT = 0x40000000
UNKNOWN_SYSCALL = -1
ATTRIBUTE_OPTIMIZE = 8
BINARY_TREE = 2


class _Comparison(ctypes.Structure):
    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    ]


_lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
_lib.seccomp_init.restype = ctypes.c_void_p
_lib.seccomp_init.argtypes = [ctypes.c_uint32]
_lib.seccomp_release.argtypes = [ctypes.c_void_p]
_lib.seccomp_arch_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
_lib.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
_lib.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
_lib.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
_lib.seccomp_syscall_resolve_name_arch.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
_lib.seccomp_rule_add_array.argtypes = [
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.POINTER(_Comparison),
]


class Rejected(Exception):
    """libseccomp does not take the profile, so neither does a runtime."""


def number(name: str, architecture: str = "SCMP_ARCH_X86_64") -> int:
    """The number of a system call in an ABI, negative where the ABI has none."""
    return int(_lib.seccomp_syscall_resolve_name_arch(ARCHITECTURES[architecture], name.encode()))


def action_value(action: str, errno: int | None) -> int:
    value = ACTIONS[action]
    if action in ("SCMP_ACT_ERRNO", "SCMP_ACT_TRACE"):
        value |= 1 if errno is None else errno & 0xFFFF
    return value


def _rules(args: list[dict[str, Any]]) -> list[list[_Comparison]]:
    comparisons = [
        _Comparison(arg["index"], OPERATORS[arg["op"][9:]], arg.get("value", 0), arg.get("valueTwo", 0))
        for arg in args
    ]
    if len({arg["index"] for arg in args}) < len(args):
        return [[comparison] for comparison in comparisons]
    return [comparisons]


class Filter:
    """The filter that runc loads for a profile: libseccomp's program behind runc's own ENOSYS stub.

    crun loads the program alone, which `stub=False` gives. `binary_tree` is what newer runc asks libseccomp
    for.
    """

    def __init__(self, profile: dict[str, Any], *, stub: bool = True, binary_tree: bool = False) -> None:
        self.default = action_value(profile["defaultAction"], profile.get("defaultErrnoRet"))
        self.architectures = {"SCMP_ARCH_X86_64", *(profile.get("architectures") or ())}
        self.last: dict[str, int] = {}
        context = _lib.seccomp_init(self.default)
        if not context:
            raise Rejected("default action")
        try:
            for architecture in profile.get("architectures") or ():
                _lib.seccomp_arch_add(context, ARCHITECTURES[architecture])
            if binary_tree:
                _lib.seccomp_attr_set(context, ATTRIBUTE_OPTIMIZE, BINARY_TREE)
            for entry in profile.get("syscalls") or ():
                self._add(context, entry)
            self.program = bpf.load(_export(context))
        finally:
            _lib.seccomp_release(context)
        if stub and self.default & ACTION_MASK not in PERMISSIVE:
            self._find_last(profile)

    def _add(self, context: int, entry: dict[str, Any]) -> None:
        value = action_value(entry["action"], entry.get("errnoRet"))
        if value == self.default:
            return
        for name in entry["names"]:
            resolved = _lib.seccomp_syscall_resolve_name(name.encode())
            if resolved == UNKNOWN_SYSCALL:
                continue
            for rule in _rules(entry.get("args") or []):
                array = (_Comparison * len(rule))(*rule)
                error = _lib.seccomp_rule_add_array(context, value, resolved, len(rule), array)
                if error < 0:
                    raise Rejected(f"{entry}: {os.strerror(-error)}")

    def _find_last(self, profile: dict[str, Any]) -> None:
        for architecture in profile.get("architectures") or ():
            names = {name for entry in profile.get("syscalls") or () for name in entry["names"]}
            last = max((number(name, architecture) for name in names), default=0)
            if last > 0:
                self.last[architecture] = last

    def decide(self, architecture: str, nr: int, args: tuple[int, ...]) -> int:
        """The verdict for a call of an ABI; x32 numbers come with their bit."""
        if architecture in self.last and nr > self.last[architecture]:
            return ERRNO_ENOSYS
        audit = AUDIT_X86 if architecture == "SCMP_ARCH_X86" else AUDIT_X86_64
        return bpf.run(self.program, nr, audit, args)


def _export(context: int) -> bytes:
    fd = os.memfd_create("filter")
    try:
        error = _lib.seccomp_export_bpf(context, fd)
        if error < 0:
            raise Rejected(os.strerror(-error))
        return os.pread(fd, 1 << 20, 0)
    finally:
        os.close(fd)

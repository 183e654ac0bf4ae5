"""Seccomp profiles, written and generated, and the calls on which two filters are compared."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES
from tests.support.libseccomp import X32_BIT, number
from tests.support.watched import RM_PAIRS, UVM_COMMANDS

Profile = dict[str, Any]
# The ABI, the number, six arguments.
Call = tuple[str, int, tuple[int, ...]]

X86_64, X86, X32 = "SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"
ABIS = (X86_64, X86, X32)
TIOCSTI, TIOCLINUX, TCGETS = 0x5412, 0x541C, 0x5401
LOW, ALL = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

_PROFILES = Path(__file__).resolve().parents[1] / "unit/profiles"

# What a container engine's default profile denies, as this project tells it; the rest of the table is
# allowed.
_DENIED = """acct add_key bpf clock_adjtime clock_settime create_module delete_module finit_module get_kernel_syms
    get_mempolicy init_module ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind mount
    move_mount move_pages nfsservctl open_by_handle_at perf_event_open personality pivot_root process_vm_readv
    process_vm_writev query_module quotactl reboot request_key set_mempolicy setns settimeofday stime swapoff
    swapon sysfs _sysctl umount umount2 unshare uselib userfaultfd ustat vm86 vm86old clone"""
DENIED_BY_DEFAULT = frozenset(_DENIED.split())
_COMMON = """accept access arch_prctl bind brk capget capset chdir chmod chown clock_gettime clock_nanosleep close
    connect dup dup2 dup3 epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 execve exit exit_group faccessat2
    fchdir fchmod fchown fcntl fork fstat fstatfs futex getcwd getdents64 getegid geteuid getgid getpid getppid
    getrandom gettid getuid ioctl io_uring_enter io_uring_register io_uring_setup kill listen lseek lstat madvise
    memfd_create mknod mmap mmap2 mprotect munmap nanosleep newfstatat open openat pipe2 poll ppoll prctl
    pread64 prlimit64 pwrite64 read readlink readlinkat recvfrom recvmsg rename restart_syscall rseq rt_sigaction
    rt_sigprocmask rt_sigreturn sched_getaffinity sched_yield select sendmsg set_robust_list set_tid_address
    setgid setgroups setresgid setresuid setsid setuid sigaltstack socket socketpair stat statfs statx tgkill
    umask uname unlink wait4 waitid write writev"""
COMMON = tuple(_COMMON.split())


def condition(op: str, value: int, value_two: int = 0, index: int = 1) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": value_two, "op": "SCMP_CMP_" + op}


def rule(
    action: str, *args: dict[str, Any], names: tuple[str, ...] = ("ioctl",), errno: int | None = None
) -> Profile:
    entry: Profile = {"names": list(names), "action": "SCMP_ACT_" + action}
    if errno is not None:
        entry["errnoRet"] = errno
    if args:
        entry["args"] = list(args)
    return entry


def profile(
    default: str, *rules: Profile, abis: tuple[str, ...] = ABIS, errno: int | None = None
) -> Profile:
    made: Profile = {
        "defaultAction": "SCMP_ACT_" + default,
        "architectures": list(abis),
        "syscalls": list(rules),
    }
    if errno is not None:
        made["defaultErrnoRet"] = errno
    return made


def engine_default(*ioctl: Profile) -> Profile:
    """Shaped like Docker's: errno by default, one long list of names without conditions, a few rules with
    some.

    ioctl: rules instead of the plain permission.
    """
    names = tuple(name for name in COMMON if name != "ioctl") if ioctl else COMMON
    return profile(
        "ERRNO",
        rule("ALLOW", names=names),
        *ioctl,
        *(rule("ALLOW", condition("EQ", value, index=0), names=("personality",)) for value in (0, 8, LOW)),
        rule("ALLOW", condition("MASKED_EQ", 0x7E020000, 0, index=0), names=("clone",)),
        rule("ERRNO", names=("clone3",), errno=38),
        errno=1,
    )


def crio_default() -> Profile:
    """CRI-O 1.37's profile for a container that names none: seven conditions in its rule for clone."""
    made: Profile = json.loads((_PROFILES / "crio-1.37-default.json").read_text())
    return made


interesting_commands = st.one_of(
    st.sampled_from([0xC0000000 | size << 16 | 0x46 << 8 | nr for nr, size in RM_PAIRS]),
    st.sampled_from([datum for _, datum in NOTIFY_CUBES + REFUSED_CUBES]),
    st.sampled_from([*UVM_COMMANDS, TIOCSTI, TIOCLINUX, TCGETS, 0, LOW]),
    st.integers(0, LOW),
)
numbers = st.one_of(
    interesting_commands,
    interesting_commands,
    st.builds(
        lambda low, high: low | high << 32, interesting_commands, st.sampled_from([1, 2, 0x80000000, LOW])
    ),
    st.integers(0, 8),
)
masks = st.one_of(
    st.sampled_from([0xFF, 0xFF00, 0x3FFF00FF, LOW, ALL, 0x3FFF0000, 1, 0xFFFF]),
    st.sampled_from([0, LOW << 32, 1 << 32]),
    st.integers(0, LOW),
)


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    op = draw(st.sampled_from(["EQ", "MASKED_EQ", "NE", "LT", "LE", "GT", "GE", "EQ", "MASKED_EQ", "NE"]))
    index = draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2, 5]))
    if op == "MASKED_EQ":
        return condition(op, draw(masks), draw(numbers), index)
    return condition(op, draw(numbers), 0, index)


actions = st.sampled_from(
    ["ALLOW", "ALLOW", "ALLOW", "ERRNO", "ERRNO", "LOG", "TRACE", "KILL", "KILL_PROCESS", "TRAP"]
)


@st.composite
def rules(draw: st.DrawFn) -> Profile:
    names = draw(
        st.sampled_from(
            [
                ("ioctl",),
                ("ioctl",),
                ("read", "ioctl", "write"),
                ("io_uring_setup",),
                ("personality", "read"),
                # libseccomp 2.5 denies everything where x86-64 and x32 have no other system call than this.
                ("mmap", "mmap2", "remap_file_pages", "read"),
                ("mmap", "getpid"),
            ]
        )
    )
    action = draw(actions)
    errno = draw(st.sampled_from([None, 1, 38])) if action in ("ERRNO", "TRACE") else None
    args = draw(st.lists(conditions(), max_size=3)) if draw(st.booleans()) else [draw(conditions())]
    return rule(action, *args, names=names, errno=errno)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    default = draw(
        st.sampled_from(["ERRNO", "ERRNO", "ALLOW", "ALLOW", "KILL_PROCESS", "LOG", "TRACE", "TRAP", "KILL"])
    )
    errno = draw(st.sampled_from([None, 1, 38])) if default in ("ERRNO", "TRACE") else None
    abis = draw(st.sampled_from([ABIS, ABIS, (X86_64,), (), (X86,), (X86_64, X86)]))
    return profile(default, *draw(st.lists(rules(), max_size=4)), abis=abis, errno=errno)


def _mentioned(of: Profile) -> list[int]:
    found = {0, 1}
    for entry in of["syscalls"]:
        for arg in entry.get("args", ()):
            for value in (arg["value"], arg["valueTwo"], arg["valueTwo"] & arg["value"]):
                found |= {value, (value + 1) & ALL, (value - 1) & ALL}
    return sorted(found)


SYSCALLS = ("ioctl", "io_uring_setup", "read", "personality", "getpid", "mmap", "mmap2", "remap_file_pages")


def syscall_number(name: str, abi: str) -> int:
    return number(name, abi)


MAPPED: tuple[tuple[int, ...], ...] = (
    (0, 4096, 0x7F0000000000, ALL),
    (0, 4096, LOW << 32),
    (0, 1, 2, 3, 3, 3, 7),
    (1, 1, 0x11, 0x11, 0x100001, 2, 0x22),
    (3, LOW, ALL),
    (0, 0, 1, 4095, 4096, 0x7F0000000000),
)


def mapping(abi: str, args: tuple[int, ...]) -> Call:
    """A call of mmap, or of what i386 has in its place."""
    if abi == X86:
        return abi, syscall_number("mmap2", abi), tuple(arg & LOW for arg in args)
    return abi, syscall_number("mmap", abi), args


def calls(of: Profile) -> st.SearchStrategy[Call]:
    """Calls near what the profile and the watched set tell apart."""
    near = st.sampled_from(_mentioned(of))
    flipped = st.builds(lambda value, bit: value ^ 1 << bit, interesting_commands, st.integers(0, 63))
    commands = st.one_of(near, near, numbers, flipped)
    others = st.one_of(near, st.sampled_from([0, 3, ALL, LOW << 32, (LOW << 32) - 1]))

    def build(abi: str, name: str, command: int, rest: tuple[int, ...]) -> Call:
        args = (rest[0], command, *rest[1:])
        if abi == X86:
            args = tuple(arg & LOW for arg in args)
        return abi, syscall_number(name, abi), args

    return st.builds(
        build,
        st.sampled_from([X86_64, *ABIS]),
        st.sampled_from(["ioctl", "ioctl", "ioctl", "ioctl", *SYSCALLS]),
        commands,
        st.tuples(*[others] * 5),
    ) | st.builds(mapping, st.sampled_from([X86_64, *ABIS]), st.tuples(*map(st.sampled_from, MAPPED)))


assert X32_BIT & syscall_number("ioctl", X32)

"""The program that keeps NVIDIA's open files from processes without a grant.

Where it looks, by what a compiler says of structs; and what it decides, in a kernel's memory that is made up.
"""

import ctypes
import functools
import stat
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.native import engine_parts

ENOENT, EPROTO, EPERM = 2, 71, 1
MAP_FD = 7
# Members of different sizes before what is looked for, anonymous structs and bits as the kernel's have them.
STRUCTS = """
#define HAS(type, before, member) \\
    const unsigned long type##_##member __attribute__((used)) = __builtin_offsetof(struct type, member)
typedef unsigned short umode_t;
enum odd { ODD = 1 };
enum far { FAR = 0x1ffffffff };
struct inode { umode_t i_mode; const char *i_name; unsigned i_rdev; };
struct file { union { long f_llist; char f_rcu[16]; }; float ratio; struct inode *f_inode; };
struct ns_common { void *stashed; const void *ops; unsigned inum; };
struct pid_namespace { char kref[72]; struct pid_namespace *parent; struct ns_common ns; };
struct pid { int count; unsigned level; };
struct nsproxy { int count; void *uts; struct pid_namespace *pid_ns_for_children; };
struct task_struct {
    volatile long state; unsigned a : 3, b : 5;
    struct { enum odd odd; enum far far; struct { struct pid *thread_pid; }; };
    int (*call)(int, ...); char name[4000]; struct nsproxy *nsproxy;
};
struct task_struct task; struct file file; struct nsproxy nsproxy; struct pid_namespace space;
struct inode inode;
int bpf_lsm_file_open(struct file *f) { return f != 0; }
int bpf_lsm_file_receive(struct file *f) { return f == 0; }
"""
MEMBERS = (
    ("file", "f_inode"),
    ("inode", "i_mode"),
    ("inode", "i_rdev"),
    ("task_struct", "thread_pid"),
    ("pid", "level"),
    ("task_struct", "nsproxy"),
    ("nsproxy", "pid_ns_for_children"),
    ("pid_namespace", "parent"),
    ("pid_namespace", "ns"),
    ("ns_common", "inum"),
)


class Btf(ctypes.Structure):
    _fields_ = [
        ("types", ctypes.c_void_p),
        ("strings", ctypes.c_void_p),
        ("types_bytes", ctypes.c_uint32),
        ("strings_bytes", ctypes.c_uint32),
    ]


class Places(ctypes.Structure):
    """struct guard_places"""

    _fields_ = [
        (name, ctypes.c_int16)
        for name in (
            "file_inode",
            "inode_mode",
            "inode_rdev",
            "task_pid",
            "pid_level",
            "task_nsproxy",
            "nsproxy_space",
            "ns_number",
            "ns_parent",
        )
    ]


@functools.cache
def lib() -> ctypes.CDLL:
    return ctypes.CDLL(engine_parts.library("guard.so"))


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """BTF as a compiler writes it."""
    folder = tmp_path_factory.mktemp("btf")
    (folder / "t.c").write_text(STRUCTS)
    subprocess.run(["gcc", "-gbtf", "-O0", "-c", "t.c"], cwd=folder, check=True)
    subprocess.run(
        [
            "objcopy",
            "-O",
            "binary",
            "--only-section=.BTF",
            "--set-section-flags",
            ".BTF=alloc",
            "t.o",
            "t.btf",
        ],
        cwd=folder,
        check=True,
    )
    return (folder / "t.btf").read_bytes()


def opened(of: bytes) -> Btf:
    btf = Btf()
    assert lib().btf_open(ctypes.byref(btf), of, ctypes.c_size_t(len(of))) == 0
    return btf


def offsets(folder: Path) -> list[int]:
    """Of MEMBERS, by the compiler."""
    lines = "".join(
        f'    __builtin_printf("%zu ", __builtin_offsetof(struct {a}, {b}));\n' for a, b in MEMBERS
    )
    (folder / "o.c").write_text(f"{STRUCTS}\nint main(void) {{\n{lines}    return 0;\n}}\n")
    subprocess.run(["gcc", "-o", "o", "o.c"], cwd=folder, check=True)
    return [int(each) for each in subprocess.check_output([folder / "o"]).split()]


def test_members_are_where_the_compiler_puts_them(types: bytes, tmp_path: Path) -> None:
    btf = opened(types)
    found = [lib().btf_member(ctypes.byref(btf), a.encode(), b.encode()) for a, b in MEMBERS]
    assert found == offsets(tmp_path)


@pytest.mark.parametrize(("of", "member"), [("file", "f_none"), ("task_struct", "b"), ("none", "f_inode")])
def test_what_is_not_there_is_not_found(types: bytes, of: str, member: str) -> None:
    btf = opened(types)
    assert lib().btf_member(ctypes.byref(btf), of.encode(), member.encode()) == -ENOENT


def test_functions_are_numbered_as_their_types_are(types: bytes) -> None:
    btf = opened(types)
    hook, other = (
        lib().btf_function(ctypes.byref(btf), name)
        for name in (b"bpf_lsm_file_receive", b"bpf_lsm_file_open")
    )
    assert hook > 0 < other != hook
    assert lib().btf_function(ctypes.byref(btf), b"bpf_lsm_file_close") == -ENOENT


def test_btf_that_is_cut_or_changed_is_refused_or_misses_something(types: bytes) -> None:
    for size in range(0, len(types), 7):
        btf, cut = Btf(), ctypes.create_string_buffer(types[:size], size) if size else None
        assert lib().btf_open(ctypes.byref(btf), cut, ctypes.c_size_t(size)) == -EPROTO
    for at in range(24, len(types), 5):
        changed = types[:at] + b"\xff" + types[at + 1 :]
        btf = Btf()
        if lib().btf_open(ctypes.byref(btf), changed, ctypes.c_size_t(len(changed))) == 0:
            lib().btf_member(ctypes.byref(btf), b"task_struct", b"nsproxy")
            lib().btf_function(ctypes.byref(btf), b"bpf_lsm_file_receive")


# The kernel's memory, by addresses.
FILE, INODE, TASK, PID, NSPROXY, SPACES = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000
STACK_END, CONTEXT, VALUE = 0x90000, 0xA0000, 0xB0000
NVIDIA, UVM, OTHER = 195, 510, 1
INITIAL, TENANT, STRANGE = 0xEFFFFFFC, 0xF0000001, 0xF0000002
SIZES = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}


@dataclass(frozen=True)
class Process:
    """spaces: its pid namespaces, its own first and the initial one last."""

    spaces: Sequence[int]
    mode: int = stat.S_IFCHR | 0o666
    major: int = NVIDIA


def places(types: bytes) -> Places:
    found, btf = Places(), opened(types)
    assert lib().guard_places_read(ctypes.byref(btf), ctypes.byref(found)) == 0
    return found


def memory_of(at: Places, of: Process) -> dict[int, bytes]:
    held = {
        CONTEXT: struct.pack("<Q", FILE),
        FILE + at.file_inode: struct.pack("<Q", INODE),
        INODE + at.inode_mode: struct.pack("<H", of.mode),
        INODE + at.inode_rdev: struct.pack("<I", of.major << 20 | 3),
        TASK + at.task_pid: struct.pack("<Q", PID),
        PID + at.pid_level: struct.pack("<I", len(of.spaces) - 1),
        TASK + at.task_nsproxy: struct.pack("<Q", NSPROXY),
        NSPROXY + at.nsproxy_space: struct.pack("<Q", SPACES),
    }
    for number, inode in enumerate(of.spaces):
        vaspace = SPACES + 0x400 * number
        above = vaspace + 0x400 if number + 1 < len(of.spaces) else 0
        held[vaspace + at.ns_number] = struct.pack("<I", inode)
        held[vaspace + at.ns_parent] = struct.pack("<Q", above)
    return held


def said(types: bytes, of: Process, keys: Sequence[int]) -> int:
    """What the program returns. What is not in the memory reads as 0, as the kernel has it."""
    at = places(types)
    program = (ctypes.c_uint64 * 64)()
    count = lib().guard_program(ctypes.byref(at), MAP_FD, program)
    memory = memory_of(at, of)
    r = [0] * 11
    r[1], r[10] = CONTEXT, STACK_END
    pc = steps = 0
    while True:
        assert 0 <= pc < count
        assert (steps := steps + 1) < 1000
        code, registers, off, imm = struct.unpack("<BBhi", struct.pack("<Q", program[pc]))
        to, source = registers & 15, registers >> 4
        pc += 1
        match code & 7, code:
            case 1, _:  # LDX
                size = SIZES[code & 0x18]
                held = memory.get(r[source] + off, b"")
                assert len(held) in (0, size), f"{size} bytes are read of {len(held)}"
                r[to] = int.from_bytes(held, "little")
            case _, 0x63:
                memory[r[to] + off] = struct.pack("<I", r[source] & 0xFFFFFFFF)
            case _, 0x18:
                assert (source, imm) == (1, MAP_FD)
                r[to], pc = MAP_FD, pc + 1
            case _, 0xB7:
                r[to] = imm
            case _, 0xBF:
                r[to] = r[source]
            case _, 0x07:
                r[to] += imm
            case _, 0x17:
                r[to] -= imm
            case _, 0x57:
                r[to] &= imm
            case _, 0x77:
                r[to] >>= imm
            case _, 0x15:
                pc += off if r[to] == imm else 0
            case _, 0x55:
                pc += off if r[to] != imm else 0
            case _, 0x85 if imm == 1:
                assert r[1] == MAP_FD
                r[0] = VALUE if struct.unpack("<I", memory[r[2]])[0] in keys else 0
            case _, 0x85 if imm == 158:
                r[0] = TASK
            case _, 0x95:
                return r[0]
            case _:
                raise AssertionError(f"code {code:#x} {imm}")


KEYS = (NVIDIA, UVM, TENANT)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (Process([INITIAL]), 0),
        (Process([TENANT, INITIAL]), 0),
        (Process([STRANGE, TENANT, INITIAL]), 0),
        (Process([*[STRANGE] * 30, TENANT, INITIAL]), 0),
        (Process([STRANGE, INITIAL]), -EPERM),
        (Process([STRANGE, INITIAL], major=UVM), -EPERM),
        (Process([*[STRANGE] * 32, INITIAL]), -EPERM),
        (Process([STRANGE, INITIAL], major=OTHER), 0),
        (Process([STRANGE, INITIAL], mode=stat.S_IFBLK | 0o660), 0),
        (Process([STRANGE, INITIAL], mode=stat.S_IFREG | 0o644), 0),
    ],
    ids=["host", "granted", "below", "far-below", "strange", "uvm", "deep", "other-node", "block", "file"],
)
def test_who_may_receive_a_file(types: bytes, of: Process, expected: int) -> None:
    assert said(types, of, KEYS) == expected


def test_without_a_member_there_is_no_program(types: bytes) -> None:
    without = types.replace(b"f_inode\0", b"g_inode\0")
    found, btf = Places(), opened(without)
    assert lib().guard_places_read(ctypes.byref(btf), ctypes.byref(found)) == -ENOENT

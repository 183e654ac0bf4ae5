"""What a rewritten profile may decide otherwise than the original."""

from oci_specs.seccomp import broad
from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES
from tests.support.libseccomp import (
    ACTION_MASK,
    ALLOW,
    ERRNO_ENOSYS,
    ERRNO_EPERM,
    NOTIFY,
    PERMISSIVE,
    Filter,
)
from tests.support.seccomp_profiles import (
    LOW,
    X86,
    X86_64,
    Call,
    syscall_number,
)

# Bytes that no address space of x86-64 has.
NO_SUCH_LENGTH = 1 << 63


def in_cubes(command: int, cubes: tuple[tuple[int, int], ...]) -> bool:
    return any(command & mask == datum for mask, datum in cubes)


def permissive(verdict: int) -> bool:
    return verdict & ACTION_MASK in PERMISSIVE


def shared_for_writing(args: tuple[int, ...]) -> bool:
    return bool(args[2] & 2 and args[3] & 1)


def maps_as_uvm(args: tuple[int, ...]) -> bool:
    """A shared mapping for reading and writing that may be at the address that is its offset."""
    address, _, protection, flags, _, offset = args
    if protection & 3 != 3 or not flags & 1:
        return False
    return offset >= 1 or (address == 0 and bool(flags & 0x100010))


def check_mmap(abi: str, was: int, now: int, args: tuple[int, ...]) -> None:
    said = f"{abi} {[hex(arg) for arg in args]}: {was:#x} became {now:#x}"
    if not permissive(was):
        assert now == was, said
    elif abi != X86_64:
        # The arguments lie elsewhere, or only their low words are compared.
        assert now in (ERRNO_EPERM, ERRNO_ENOSYS), said
    elif args[1] >= NO_SUCH_LENGTH:
        assert now in (was, ERRNO_EPERM, ERRNO_ENOSYS, NOTIFY), said
    else:
        assert now == (NOTIFY if shared_for_writing(args) else was), said


def check(before: Filter, after: Filter, call: Call) -> None:
    abi, nr, args = call
    was, now = before.decide(abi, nr, args), after.decide(abi, nr, args)
    if nr in (syscall_number("io_uring_setup", abi), syscall_number("remap_file_pages", abi)):
        assert now == ERRNO_EPERM if permissive(was) else not permissive(now)
    elif nr == syscall_number("mmap", abi):
        check_mmap(abi, was, now, args)
    elif abi == X86 and nr == syscall_number("mmap2", abi):
        expected = ERRNO_EPERM if permissive(was) and maps_as_uvm(args) else was
        assert now == expected, f"{[hex(arg) for arg in args]}: {was:#x} became {now:#x}"
    elif nr == syscall_number("ioctl", abi):
        check_ioctl(was, now, args[1], f"{abi} {[hex(arg) for arg in args]}: {was:#x} became {now:#x}")
    else:
        assert now == was, f"{abi} {nr} {[hex(arg) for arg in args]}: {was:#x} became {now:#x}"


def check_ioctl(was: int, now: int, value: int, said: str) -> None:
    command = value & LOW
    # The mediator lets these go on by their numbers (test_rm_table.py): they are allowed, and nothing else.
    same = now == was or (was == ALLOW and now == NOTIFY and in_cubes(command, broad.NOTIFIED))
    if not in_cubes(command, NOTIFY_CUBES + REFUSED_CUBES):
        # The kernel drops the upper half: such a call may share its command's fate, here and below.
        assert same or (value > LOW and not permissive(now) and in_cubes(command, broad.NOTIFIED)), said
    elif value > LOW:
        assert not permissive(now), said
    elif permissive(was):
        assert now == NOTIFY, said
    else:
        # Of several rules that deny it another one may now come first.
        assert not permissive(now), said
        assert now != NOTIFY, said

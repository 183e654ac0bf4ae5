"""The mmap rules of a profile: what could be a managed range of nvidia-uvm goes to the mediator.

uvm_mmap() (uvm.c of NVIDIA's open kernel modules) takes shared mappings for reading and writing whose offset
in the file is their address, and no others. The filter matches all that are shared and for writing: each
further condition costs a container's start more than it saves the mediator, which looks at the rest.

As with ioctl, a rule without conditions is replaced by the complement, since libseccomp drops what stands
beside it. Arguments mean something else in the system calls of other ABIs: mmap of i386 has a pointer to
them, mmap2 counts offsets in pages, and libseccomp compares only low words there and in x32. So mmap is
refused to all but 64-bit programs, and mmap2, which 32-bit programs use,
for what uvm_mmap() could take: an offset that is not 0, or the address 0, which has to be asked for with
MAP_FIXED. What a profile decides by conditions of its own is refused, not guessed at.
"""

from __future__ import annotations

from oci_specs.seccomp.actions import ERRNO, NOTIFY, PERMISSIVE
from oci_specs.seccomp.conditions import refuse, upper_only, write
from oci_specs.seccomp.ioctl_rules import replace, rules_of
from oci_specs.seccomp.refused import REFUSED_ERRNO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oci_specs.seccomp.actions import Action
    from oci_specs.seccomp.ioctl_rules import Conjunction, Entry

MMAP, MMAP2 = "mmap", "mmap2"
ADDRESS, LENGTH, PROTECTION, FLAGS, DESCRIPTOR, OFFSET = range(6)
READ, WRITE = 0x1, 0x2
# MAP_SHARED and MAP_SHARED_VALIDATE have it, MAP_PRIVATE has not.
SHARED = 0x1
# MAP_FIXED, MAP_FIXED_NOREPLACE.
FIXED: tuple[int, ...] = (0x10, 0x100000)
ENOSYS = 38
# No mapping is so long: addresses have 57 bits.
TOO_LONG = 1 << 63

NOTIFIED: tuple[Conjunction, ...] = (
    ((PROTECTION, "MASKED_EQ", WRITE, WRITE), (FLAGS, "MASKED_EQ", SHARED, SHARED)),
)
LEFT_ALONE: tuple[Conjunction, ...] = (
    ((PROTECTION, "MASKED_EQ", WRITE, 0),),
    ((FLAGS, "MASKED_EQ", SHARED, 0),),
)
# Every call of a 32-bit ABI: nothing of this condition is left there, and a rule without conditions is the
# only one of its system call that counts.
FOREIGN: tuple[Conjunction, ...] = (((LENGTH, "MASKED_EQ", TOO_LONG, TOO_LONG),),)

_READ_WRITE = (PROTECTION, "MASKED_EQ", READ | WRITE, READ | WRITE)
_FIRST_PAGE = (OFFSET, "EQ", 0, 0)
REFUSED2: tuple[Conjunction, ...] = (
    (_READ_WRITE, (FLAGS, "MASKED_EQ", SHARED, SHARED), (OFFSET, "GE", 1, 0)),
    *(
        ((ADDRESS, "EQ", 0, 0), _READ_WRITE, (FLAGS, "MASKED_EQ", SHARED | fixed, SHARED | fixed))
        for fixed in FIXED
    ),
)
LEFT_ALONE2: tuple[Conjunction, ...] = (
    *(((PROTECTION, "MASKED_EQ", bit, 0),) for bit in (READ, WRITE)),
    ((FLAGS, "MASKED_EQ", SHARED, 0),),
    ((ADDRESS, "NE", 0, 0), _FIRST_PAGE),
    ((FLAGS, "MASKED_EQ", sum(FIXED), 0), _FIRST_PAGE),
)


def only_ours(names: list[str], conjunctions: list[Conjunction]) -> bool:
    """A rule for NOTIFY that this module has written."""
    return names == [MMAP] and all(conjunction in NOTIFIED for conjunction in conjunctions)


def rewrite_mmap(entries: list[Entry], default: Action) -> list[Entry]:
    """entries, where the watched calls that were let through are notified, or refused where they are not
    native.
    """
    # A rule that does what the default does is none, and would leave foreign calls to the others.
    errno = ENOSYS if default == ("ERRNO", REFUSED_ERRNO) else REFUSED_ERRNO
    made = [*_entries(MMAP, {"action": NOTIFY}, NOTIFIED), *_refusals(MMAP, errno, FOREIGN)]
    entries = _rewrite(entries, MMAP, default, LEFT_ALONE, made)
    return _rewrite(entries, MMAP2, default, LEFT_ALONE2, _refusals(MMAP2, REFUSED_ERRNO, REFUSED2))


def _entries(name: str, verdict: Entry, conjunctions: tuple[Conjunction, ...]) -> list[Entry]:
    return [{"names": [name], **verdict, "args": write(conjunction)} for conjunction in conjunctions]


def _refusals(name: str, errno: int, conjunctions: tuple[Conjunction, ...]) -> list[Entry]:
    return _entries(name, {"action": ERRNO, "errnoRet": errno}, conjunctions)


def _rewrite(
    entries: list[Entry],
    name: str,
    default: Action,
    others: tuple[Conjunction, ...],
    made: list[Entry],
) -> list[Entry]:
    own = [entry for entry in entries if entry not in made]
    rules = rules_of(own, name, default)
    if any(upper_only(conditions) for _, _, conditions in rules):
        raise refuse(
            f"has a rule for {name} on the upper half of an argument, which 32-bit programs always meet"
        )
    for index, verdict, conditions in rules:
        if not conditions:
            if verdict[0] not in PERMISSIVE:
                return entries
            # It decides alone today. It becomes conditional, so the rules that it outvotes must go.
            replaced: dict[int, list[Entry]] = {other: [] for other, _, _ in rules}
            kept: Entry = {key: own[index][key] for key in ("action", "errnoRet") if key in own[index]}
            replaced[index] = _entries(name, kept, others)
            return [*replace(own, name, replaced), *made]
    is_written = all(entry in entries for entry in made)
    if any(conditions not in others or not is_written for _, _, conditions in rules):
        raise refuse(
            f"has rules for {name} with conditions, beside which the driver's mappings cannot be watched"
        )
    if default[0] not in PERMISSIVE:
        return entries
    return [*own, *made]

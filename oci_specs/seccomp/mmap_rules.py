"""The mmap rules of a profile: what could be a managed range of nvidia-uvm goes to the mediator.

uvm_mmap() (uvm.c of NVIDIA's open kernel modules) takes shared mappings for reading and writing whose offset
in the file is their address, and no others. So the offset is not 0, or the address is, which has to be asked
for with MAP_FIXED. Ordinary programs rarely map like this.

As with ioctl, a rule without conditions is replaced by the complement, since libseccomp drops what stands
beside it. Arguments mean something else in the system calls of other ABIs: mmap of i386 has a pointer to
them, mmap2 counts offsets in pages, and libseccomp compares only low words there and in x32. So mmap is
refused to all but 64-bit programs, by the filter or by the mediator, and mmap2, which 32-bit programs use,
for such mappings. What a profile decides by conditions of its own is refused, not guessed at.
"""

from __future__ import annotations

from oci_specs.seccomp.actions import ERRNO, NOTIFY, PERMISSIVE
from oci_specs.seccomp.conditions import refuse, upper_only, write
from oci_specs.seccomp.cubes import ALL_BITS, LOW_BITS
from oci_specs.seccomp.ioctl_rules import replace, rules_of
from oci_specs.seccomp.refused import REFUSED_ERRNO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oci_specs.seccomp.actions import Action
    from oci_specs.seccomp.conditions import Condition
    from oci_specs.seccomp.ioctl_rules import Conjunction, Entry

MMAP, MMAP2 = "mmap", "mmap2"
ADDRESS, LENGTH, PROTECTION, FLAGS, DESCRIPTOR, OFFSET = range(6)
READ_WRITE = 0x3
# MAP_SHARED and MAP_SHARED_VALIDATE have it, MAP_PRIVATE has not.
SHARED = 0x1
# MAP_FIXED, MAP_FIXED_NOREPLACE.
FIXED: tuple[int, ...] = (0x10, 0x100000)
PAGE = 4096
# Each 64-bit value meets one of them, and no value of 32 bits.
_IN_64_BITS: tuple[Condition, ...] = (
    (DESCRIPTOR, "LT", ALL_BITS ^ LOW_BITS, 0),
    (DESCRIPTOR, "GT", LOW_BITS, 0),
)


def _conjunctions(first_page: int) -> tuple[tuple[Conjunction, ...], tuple[Conjunction, ...]]:
    """What is watched, and the rest; first_page: the least offset beyond a file's first page."""
    in_first_page = (OFFSET, "MASKED_EQ", ALL_BITS ^ (first_page - 1), 0)
    read_write = (PROTECTION, "MASKED_EQ", READ_WRITE, READ_WRITE)
    watched: tuple[Conjunction, ...] = (
        (read_write, (FLAGS, "MASKED_EQ", SHARED, SHARED), (OFFSET, "GE", first_page, 0)),
        *(
            ((ADDRESS, "EQ", 0, 0), read_write, (FLAGS, "MASKED_EQ", SHARED | fixed, SHARED | fixed))
            for fixed in FIXED
        ),
    )
    others: tuple[Conjunction, ...] = (
        *(((PROTECTION, "MASKED_EQ", bit, 0),) for bit in (1, 2)),
        ((FLAGS, "MASKED_EQ", SHARED, 0),),
        ((ADDRESS, "NE", 0, 0), in_first_page),
        ((FLAGS, "MASKED_EQ", sum(FIXED), 0), in_first_page),
    )
    return watched, others


def _native(conjunctions: tuple[Conjunction, ...]) -> tuple[Conjunction, ...]:
    """As on_64_bit_abis(), by the same argument in all of them: with several libseccomp can mistake one for
    another.
    """
    return tuple(
        tuple(sorted((*conjunction, condition))) for conjunction in conjunctions for condition in _IN_64_BITS
    )


_WATCHED, _OTHERS = _conjunctions(PAGE)
# What goes to the mediator names no ABI: it refuses those of other ABIs, and libseccomp loses a value of the
# argument by which ABIs are told apart, which must not be let through.
NOTIFIED, LEFT_ALONE = _WATCHED, _native(_OTHERS)
# Every call of a 32-bit ABI, and of the others those of a length that no kernel takes.
FOREIGN: tuple[Conjunction, ...] = (((LENGTH, "GE", ALL_BITS ^ LOW_BITS, 0),),)
REFUSED2, LEFT_ALONE2 = _conjunctions(1)


def only_ours(names: list[str], conjunctions: list[Conjunction]) -> bool:
    """A rule for NOTIFY that this module has written."""
    return names == [MMAP] and all(conjunction in NOTIFIED for conjunction in conjunctions)


def rewrite_mmap(entries: list[Entry], default: Action) -> list[Entry]:
    """entries, where the watched calls that were let through are notified, or refused where they are not
    native.
    """
    entries = _rewrite(entries, MMAP, default, LEFT_ALONE, {NOTIFY: NOTIFIED, ERRNO: FOREIGN})
    return _rewrite(entries, MMAP2, default, LEFT_ALONE2, {ERRNO: REFUSED2})


def _entries(name: str, verdict: Entry, conjunctions: tuple[Conjunction, ...]) -> list[Entry]:
    return [{"names": [name], **verdict, "args": write(conjunction)} for conjunction in conjunctions]


def _rewrite(
    entries: list[Entry],
    name: str,
    default: Action,
    others: tuple[Conjunction, ...],
    watched: dict[str, tuple[Conjunction, ...]],
) -> list[Entry]:
    verdicts: dict[str, Entry] = {
        NOTIFY: {"action": NOTIFY},
        ERRNO: {"action": ERRNO, "errnoRet": REFUSED_ERRNO},
    }
    made = [
        entry
        for action, conjunctions in watched.items()
        for entry in _entries(name, verdicts[action], conjunctions)
    ]
    rules = rules_of(entries, name, default)
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
            kept: Entry = {
                key: entries[index][key] for key in ("action", "errnoRet") if key in entries[index]
            }
            replaced[index] = _entries(name, kept, others)
            return [*replace(entries, name, replaced), *made]
    known = {*others, *(conjunction for conjunctions in watched.values() for conjunction in conjunctions)}
    if any(conditions not in known for _, _, conditions in rules):
        raise refuse(
            f"has rules for {name} with conditions, beside which the driver's mappings cannot be watched"
        )
    if default[0] not in PERMISSIVE:
        return entries
    return [*(entry for entry in entries if entry not in made), *made]

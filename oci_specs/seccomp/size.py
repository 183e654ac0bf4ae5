"""Whether the kernel takes the program that libseccomp makes of a profile."""

from __future__ import annotations

from oci_specs.members import member_strings
from oci_specs.seccomp.conditions import readable, refuse
from oci_specs.seccomp.cubes import LOW_BITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oci_specs.seccomp.conditions import Condition

# BPF_MAXINSNS of linux/bpf_common.h: the most instructions of one filter.
MAX_INSTRUCTIONS = 4096
# The checks of the ABI, the verdicts, and runc's own prologue.
FIXED_INSTRUCTIONS = 64
WIDE_ARCHITECTURES = frozenset(
    "SCMP_ARCH_" + name
    for name in ("X86_64", "AARCH64", "MIPS64", "MIPSEL64", "PPC64", "PPC64LE", "S390X", "RISCV64")
)


def _low_only(condition: Condition) -> bool:
    return condition[1] == "MASKED_EQ" and condition[2] <= LOW_BITS


def _instructions(condition: Condition, wide: bool) -> int:
    """At most load, mask and jump for each word, and another comparison of an upper word for an order."""
    _, op, mask, _ = condition
    if op == "MASKED_EQ":
        return 6 if wide and mask > LOW_BITS else 3
    if op in ("EQ", "NE"):
        return 4 if wide else 2
    return 5 if wide else 2


def estimate(profile: dict[str, Any]) -> int:
    """Instructions of the filter for profile, rarely fewer than libseccomp makes."""
    conditions: dict[str, list[Condition]] = {}
    for entry in profile["syscalls"]:
        found = readable(entry.get("args"))
        for name in entry["names"]:
            conditions.setdefault(name, []).extend(found)
    total = FIXED_INSTRUCTIONS
    architectures = {*member_strings(profile, "architectures"), "SCMP_ARCH_X86_64"}
    for architecture in architectures:
        wide = architecture in WIDE_ARCHITECTURES
        for found in conditions.values():
            # The number, and the load and mask of an upper word that matters to none of the conditions.
            total += 3 if found else 1
            if not all(map(_low_only, found)):
                total += sum(_instructions(condition, wide) for condition in found)
    # libseccomp writes equal tests once for all ABIs, and these are equal.
    return total + sum(3 * len(found) for found in conditions.values() if all(map(_low_only, found)))


def check_size(profile: dict[str, Any]) -> None:
    """Raises Refusal when the filter for profile would have more instructions than the kernel takes."""
    count = estimate(profile)
    if count > MAX_INSTRUCTIONS:
        raise refuse(
            f"needs about {count} filter instructions with the NVIDIA rules, and the kernel takes {MAX_INSTRUCTIONS}"
        )

"""The conditions of an OCI seccomp rule, as runc and crun hand them to libseccomp, and as cubes over one
argument.

libseccomp compares 64 bits on 64-bit ABIs and only the low word, datum and mask truncated, on i386 and x32. A
condition therefore stands for two sets, and what replaces it has to be right in both.
"""

from __future__ import annotations

from oci_specs.refusal import Refusal
from oci_specs.seccomp.cubes import ALL_BITS, LOW_BITS, below, from_bound, meet, outside, overlap, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from oci_specs.seccomp.cubes import Cube

    # (argument index, operator without its prefix, value, valueTwo)
    Condition = tuple[int, str, int, int]
    # A cube over one argument, and whether it holds on 64-bit ABIs alone.
    Part = tuple[int, int, bool]

CODE = "seccomp-profile"
HINT = "change the container's seccomp profile or start it with another one"

PREFIX = "SCMP_CMP_"
OPERATORS = frozenset(("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"))
ARGUMENTS = 6
# ioctl(fd, cmd, arg): the kernel drops the upper half of cmd.
COMMAND = 1


# More cubes than this make more instructions than the kernel takes, and a create should not wait to be told
# so.
MAX_PARTS = 4096


def refuse(what: str) -> Refusal:
    return Refusal(CODE, f"the container's seccomp profile {what}", HINT)


def too_many() -> Refusal:
    return refuse("has ioctl rules whose split needs more filter instructions than the kernel takes")


def _number(arg: dict[str, Any], key: str) -> int:
    value = arg.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= ALL_BITS:
        raise refuse(f"has an argument condition whose {key} is not an unsigned 64-bit number")
    return value


def _condition(arg: object) -> Condition:
    if not isinstance(arg, dict):
        raise refuse("has an argument condition that is not an object")
    index = _number(arg, "index")
    op = arg.get("op")
    if index >= ARGUMENTS:
        raise refuse(f"has a condition on argument {index}, and a system call has {ARGUMENTS}")
    if not isinstance(op, str) or not op.startswith(PREFIX) or op[len(PREFIX) :] not in OPERATORS:
        raise refuse("has an argument condition with an unknown operator")
    return index, op[len(PREFIX) :], _number(arg, "value"), _number(arg, "valueTwo")


def read(args: object) -> list[tuple[Condition, ...]]:
    """The rules that one `args` list makes, each a conjunction of conditions on different arguments, in
    order.

    As the runtimes do it: two conditions on one argument turn every condition of the list into a rule of its
    own. Conditions that always hold are left out, so an empty conjunction is an unconditional rule.
    """
    if args is None:
        return [()]
    if not isinstance(args, list):
        raise refuse("has argument conditions that are not a list")
    # crun reads the first six and drops the others, runc reads all.
    if len(args) > ARGUMENTS:
        raise refuse(
            f"has a rule with more than {ARGUMENTS} argument conditions, which runtimes read differently"
        )
    conditions = [_condition(arg) for arg in args]
    if len({condition[0] for condition in conditions}) < len(conditions):
        return [_without_always((condition,)) for condition in conditions]
    return [_without_always(tuple(sorted(conditions)))]


def readable(args: object) -> list[Condition]:
    """The conditions of a rule that is left as it is; the runtime judges what is wrong with the others."""
    found = []
    for arg in args if isinstance(args, list) else []:
        try:
            found.append(_condition(arg))
        except Refusal:
            continue
    return found


def _without_always(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return tuple(c for c in conditions if not (c[1] == "MASKED_EQ" and c[2] == 0))


def upper_only(conditions: Iterable[Condition]) -> bool:
    """True if a condition looks at the upper word alone, which always holds on 32-bit ABIs."""
    return any(op == "MASKED_EQ" and value and not value & LOW_BITS for _, op, value, _ in conditions)


def write(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    """The OCI `args` list of a conjunction."""
    written = []
    for index, op, value, value_two in conditions:
        arg: dict[str, Any] = {"index": index, "value": value, "op": PREFIX + op}
        if op == "MASKED_EQ":
            arg["valueTwo"] = value_two
        written.append(arg)
    return written


def _cube(condition: Condition) -> Cube | None:
    """The cube of an equality, None for the other operators."""
    _, op, value, value_two = condition
    if op == "EQ":
        return ALL_BITS, value
    if op == "MASKED_EQ":
        return value, value & value_two
    return None


def _above_low_word(parts: Iterable[Cube]) -> list[Part]:
    """parts over the low word, where in addition some bit of the upper word is set: on 64-bit ABIs only."""
    return [
        (mask | bit, datum | bit, True) for mask, datum in parts for bit in (1 << n for n in range(32, 64))
    ]


def parts(condition: Condition) -> list[Part]:
    """The values that meet condition, as cubes; 32-bit ABIs count parts without the flag only, truncated."""
    _, op, value, _ = condition
    cube = _cube(condition)
    if cube is not None:
        return [(*cube, False)]
    if op == "NE":
        return negated((condition[0], "EQ", value, 0))
    if value > LOW_BITS:
        raise refuse("compares the command of ioctl with a number of more than 32 bits")
    if op == "LE":
        return [(*cube, False) for cube in below(value + 1, ALL_BITS)]
    if op == "LT":
        return [(*cube, False) for cube in below(value, ALL_BITS)]
    if op == "GT":
        if value == LOW_BITS:
            return _above_low_word([(0, 0)])
        value += 1
    if value == 0:
        return [(0, 0, False)]
    at_least: list[Part] = [(*cube, False) for cube in from_bound(value, LOW_BITS)]
    return at_least + _above_low_word(below(value, LOW_BITS))


_OPPOSITE = {"NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


def negated(condition: Condition) -> list[Part]:
    """The values that do not meet condition, as `parts` gives those that do."""
    index, op, value, _ = condition
    cube = _cube(condition)
    if cube is None:
        return parts((index, _OPPOSITE[op], value, 0))
    # The lowest bit comes first, so a part that fixes an upper bit fixes the whole low word as in cube, and
    # there a 32-bit ABI does meet condition.
    return [(*part, part[0] > LOW_BITS) for part in outside(cube)]


def meet_parts(some: Iterable[Part], others: Iterable[Part]) -> list[Part]:
    """The values in both."""
    others = list(others)
    found = []
    for mask, datum, wide in some:
        for other in others:
            cube = meet((mask, datum), (other[0], other[1]))
            if cube is not None:
                found.append((*cube, wide or other[2]))
        if len(found) > MAX_PARTS:
            raise too_many()
    return found


def low_words(values: Iterable[Part]) -> list[Part]:
    """The commands in values as the kernel reads them; values with upper bits are no command."""
    return absorbed(
        (mask & LOW_BITS, datum & LOW_BITS, False) for mask, datum, _ in values if datum <= LOW_BITS
    )


def without_cubes(values: Iterable[Part], taken: Iterable[Part]) -> list[Part]:
    """values without those in taken, both over the low word."""
    found = list(values)
    for mask, datum, _ in taken:
        rest = [(*cube, False) for cube in outside((mask, datum))]
        kept = [part for part in found if not overlap(part[:2], (mask, datum))]
        cut = [part for part in found if overlap(part[:2], (mask, datum))]
        found = kept + (meet_parts(cut, rest) if cut else [])
    return absorbed(found)


def absorbed(values: Iterable[Part]) -> list[Part]:
    """The same values in fewer parts: those within another one are left out."""
    kept: list[Part] = []
    for mask, datum, wide in sorted(
        set(values), key=lambda part: (part[0].bit_count(), part[2], -part[1], part[0])
    ):
        if not any(within((mask, datum), other[:2]) and (wide or not other[2]) for other in kept):
            kept.append((mask, datum, wide))
    return sorted(kept, key=lambda part: (-part[1], part[0]))


def on_64_bit_abis(conditions: tuple[Condition, ...]) -> list[tuple[Condition, ...]]:
    """conditions as two rules, one of which applies to any call of a 64-bit ABI, neither to a call of a
    32-bit one.

    Every 64-bit value is below one datum or above the other; truncated to 32 bits, no value is below 0 or
    above the largest one. The two overlap: libseccomp loses the value where ranges that only adjoin would
    meet.
    """
    used = {condition[0] for condition in conditions}
    free = [index for index in range(ARGUMENTS) if index not in used]
    if not free:
        raise refuse("has an ioctl rule with conditions on all arguments that cannot be split")
    index = free[-1]
    return [
        (*conditions, (index, "LT", ALL_BITS ^ LOW_BITS, 0)),
        (*conditions, (index, "GT", LOW_BITS, 0)),
    ]


def _interval(condition: Condition, word: int) -> tuple[int, int]:
    """The least and the greatest value of 0..word that may meet condition; empty if first > last."""
    _, op, value, _ = condition
    cube = _cube(condition)
    if cube is not None:
        return cube[1] & word, (cube[1] | ~cube[0]) & word
    value &= word
    if op == "NE":
        return (1 if value == 0 else 0), (word - 1 if value == word else word)
    return {"LT": (0, value - 1), "LE": (0, value), "GE": (value, word), "GT": (value + 1, word)}[op]


def _apart(a: Condition, b: Condition, word: int) -> bool:
    """No value of 0..word meets both; False when that is not plain."""
    cube_a, cube_b = _cube(a), _cube(b)
    if cube_a is not None and cube_b is not None:
        return not overlap((cube_a[0] & word, cube_a[1] & word), (cube_b[0] & word, cube_b[1] & word))
    for one, other in ((a, cube_b), (b, cube_a)):
        if (
            one[1] == "NE"
            and other is not None
            and other[0] & word == word
            and other[1] & word == one[2] & word
        ):
            return True
    least_a, greatest_a = _interval(a, word)
    least_b, greatest_b = _interval(b, word)
    return greatest_a < least_b or greatest_b < least_a or greatest_a < least_a or greatest_b < least_b


def disjoint(a: tuple[Condition, ...], b: tuple[Condition, ...]) -> bool:
    """No call, of a 64-bit or a 32-bit ABI, meets both conjunctions; False when that is not plain."""
    by_index = {condition[0]: condition for condition in b}
    pairs = [(condition, by_index[condition[0]]) for condition in a if condition[0] in by_index]
    return all(any(_apart(*pair, word) for pair in pairs) for word in (ALL_BITS, LOW_BITS))

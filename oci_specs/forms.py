"""Readers of values: from the text of one key to its meaning, or None when the text is not allowed there.

Each form carries, in words, what it allows, so that a refusal can say it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oci_specs import units, vocabulary
from oci_specs.request import Memory

MIN_MIB = 256
_MAX = units.MAX_NUMBER

# An abbreviated UUID is enough, as for the NVIDIA runtime; older drivers name MIG devices
# MIG-GPU-<uuid>/<gi>/<ci>.
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,94}")
_MIG_INDEX = re.compile(r"[0-9]{1,4}:[0-9]{1,4}")


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from least to most in steps; with hundreds every multiple of 100 as well."""

    least: int
    most: int = _MAX
    step: int = 1
    hundreds: bool = False

    def read(self, text: str) -> int | None:
        value = units.whole_number(text)
        if value is None:
            return None
        if self.hundreds and value > 0 and value % 100 == 0:
            return value
        return value if self.least <= value <= self.most and value % self.step == 0 else None


@dataclass(frozen=True)
class Form:
    """read: the meaning of a text, or None; allowed: the accepted values in words; most: the upper limit.

    choices: the words that read takes, if it takes words.
    """

    read: Callable[[str], Any]
    allowed: str
    most: int = _MAX
    choices: tuple[str, ...] = ()

    def allowed_instead_of(self, text: str) -> str:
        """In words, what to write instead of a text that read did not take.

        The most is far beyond any card, so that only a number above it hears of it.
        """
        return f"{self.most} at most" if units.is_above(text, self.most) else self.allowed


@dataclass(frozen=True)
class Cards:
    """The number of cards, and which if named; count 0: a container without a GPU."""

    count: int
    uuids: tuple[str, ...] = ()


def _choice(values: dict[str, str]) -> Form:
    names = list(values)
    return Form(values.get, f"{', '.join(names[:-1])} or {names[-1]}", choices=tuple(names))


def _numbers(numbers: Numbers, allowed: str, meaning: Callable[[int], Any], most: int = _MAX) -> Form:
    def read(text: str) -> Any:
        value = numbers.read(text)
        return None if value is None else meaning(value)

    return Form(read, allowed, most)


def _memory(unit_mib: int, allowed: str, least: int = 1) -> Form:
    most = _MAX // unit_mib
    return _numbers(Numbers(least, most), allowed, lambda value: Memory(mib=value * unit_mib), most)


def _core(numbers: Numbers, allowed: str) -> Form:
    return _numbers(numbers, allowed, int)


COUNT = Numbers(1)


def _count_list(text: str) -> list[int] | None:
    numbers = [units.whole_number(part.strip()) for part in text.split(",")]
    return None if None in numbers else [number for number in numbers if number is not None]


def _count_or_uuids(text: str) -> Cards | None:
    if count := COUNT.read(text):
        return Cards(count)
    uuids = tuple(part.strip() for part in text.split(","))
    if len(set(uuids)) < len(uuids) or not all(_UUID.fullmatch(uuid) for uuid in uuids):
        return None
    return Cards(len(uuids), uuids)


def _placement(text: str) -> dict[str, tuple[str, ...]] | None:
    try:
        found = json.loads(text)
    # RecursionError: a document of thousands of brackets.
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(map(_are_uuids, found.values())):
        return None
    return {container: tuple(uuids) for container, uuids in found.items()}


def _are_uuids(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(uuid, str) and _UUID.fullmatch(uuid) for uuid in value)
        and len(set(value)) == len(value)
    )


def visible_devices(text: str) -> tuple[str, ...] | None:
    """The cards of NVIDIA_VISIBLE_DEVICES, each once; () for "all"; None when it is not understood."""
    if text == "all":
        return ()
    names: dict[str, None] = {}
    for part in text.split(","):
        name = part.strip()
        index = units.whole_number(name)
        if index is None and not (_UUID.fullmatch(name) or _MIG_INDEX.fullmatch(name)):
            return None
        names[name if index is None else str(index)] = None
    return tuple(names)


VISIBLE_DEVICES_ALLOWED = "all, none, void, GPU indices, GPU-… or MIG-… UUIDs, separated by commas"

_MGPU_POLICIES = {name: name for name in sorted(vocabulary.POLICIES)}
_NUMBERED_POLICIES = {str(number): name for number, name in enumerate(vocabulary.POLICIES)}

FORMS = {
    "class": _choice({"online": vocabulary.ONLINE, "offline": vocabulary.OFFLINE}),
    # system_cores is for the node's own daemons, which katalyst places outside its sharing.
    "katalyst-class": _choice(
        {
            "shared_cores": vocabulary.ONLINE,
            "dedicated_cores": vocabulary.ONLINE,
            "reclaimed_cores": vocabulary.OFFLINE,
        },
    ),
    "true-or-false": Form({"true": True, "false": False}.get, "true or false", choices=("true", "false")),
    "mgpu-policy": _choice(_MGPU_POLICIES),
    "qgpu-policy": _choice(vocabulary.QGPU_POLICIES),
    "policy": _choice({**_MGPU_POLICIES, **vocabulary.QGPU_POLICIES, **_NUMBERED_POLICIES}),
    "mib": _memory(1, f"a whole number of MiB, {MIN_MIB} or more", MIN_MIB),
    "gib": _memory(units.MIB_PER_GIB, "a whole number of GB (1024 MiB), 1 or more"),
    "vcuda-blocks": _memory(
        units.VCUDA_BLOCK_MIB, f"a whole number of {units.VCUDA_BLOCK_MIB} MiB blocks, 1 or more"
    ),
    "blocks": _memory(units.BLOCK_MIB, f"a whole number of {units.BLOCK_MIB} MiB blocks, 1 or more"),
    "memory-percent": _numbers(
        Numbers(1, 100),
        "a whole percentage of each GPU's memory, 1 to 100",
        lambda value: Memory(percent=value),
        100,
    ),
    "spare-mib": _numbers(
        Numbers(0, units.BLOCK_MIB - 1),
        f"a whole number of MiB, less than a block of {units.BLOCK_MIB}",
        int,
        units.BLOCK_MIB - 1,
    ),
    "gib-units": _numbers(
        Numbers(1, _MAX // units.MIB_PER_GIB),
        "a whole number of GiB units, 1 or more",
        lambda value: Memory(units=value),
        _MAX // units.MIB_PER_GIB,
    ),
    "mgpu-core": _core(Numbers(1, 100, hundreds=True), "1 to 100, or a multiple of 100"),
    "qgpu-core": _core(Numbers(5, 100, 5, hundreds=True), "5 to 100 in steps of 5, or a multiple of 100"),
    "vcuda-core": _core(Numbers(1, 99, hundreds=True), "1 to 99, or a multiple of 100"),
    "core": _core(Numbers(1), "a whole percentage, 1 or more and at most 100 a GPU"),
    "count-list": Form(_count_list, "one whole number for each container of the pod, such as 2,1,0"),
    "count": _numbers(COUNT, "a whole number, 1 or more", Cards),
    "count-or-uuids": Form(
        _count_or_uuids,
        "a whole number, 1 or more, or different GPU-… or MIG-… UUIDs separated by commas",
    ),
    "placement": Form(
        _placement, 'JSON of each container\'s GPUs, such as {"main": ["GPU-…"]}, as a scheduler writes it'
    ),
}

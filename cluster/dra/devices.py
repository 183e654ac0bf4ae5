"""A card as a device of a ResourceSlice: attributes to choose by, and what of it several claims may share."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cluster.api import quantity
from cluster.resources.inventory import Card
from oci_specs.forms import MIN_MIB

Json = dict[str, Any]
MEMORY, CORE, CONTAINERS = "memory", "core", "containers"
CORE_PERCENT = 100
# Its containers work no more; without mgpud those that run go on, and none begins.
LOST = {"key": "mgpu.dev/lost", "effect": "NoExecute"}
AWAY = {"key": "mgpu.dev/not-serving", "effect": "NoSchedule"}
DRAINED = {"key": "mgpu.dev/drained", "effect": "NoSchedule"}
# Limits of the API: of a string, and of a device's name, a DNS label.
_TEXT_MAX_CHARS, _NAME_MAX_CHARS = 64, 63


@dataclass(frozen=True)
class Kept:
    """Members that the API server keeps: it drops those of a feature that is off, without a word.

    consumable: DRAConsumableCapacity, so that a card can be claimed in parts. taints: DRADeviceTaints.
    """

    consumable: bool = True
    taints: bool = True

    def __and__(self, other: "Kept") -> "Kept":
        return Kept(self.consumable and other.consumable, self.taints and other.taints)


def name(uuid: str) -> str:
    """A device's name, a DNS label, from the card's UUID."""
    return re.sub(r"[^a-z0-9-]", "-", uuid.lower())[:_NAME_MAX_CHARS].strip("-")


def device(card: Card, containers: int, driver_version: str, serving: bool, kept: Kept) -> Json | None:
    """None for a card that needs a taint where there are none. containers: how many may share a card;
    driver_version: of NVIDIA's driver; serving: whether mgpud is there.
    """
    reasons = ((LOST, not card.healthy), (DRAINED, card.drained), (AWAY, not serving))
    taints = [taint for taint, holds in reasons if holds]
    if taints and not kept.taints:
        return None
    amounts = {
        MEMORY: _capacity(card.memory_mib, "Mi", least=MIN_MIB, default=card.memory_mib, kept=kept),
        CORE: _capacity(CORE_PERCENT, "", least=0, default=0, kept=kept),
    }
    found: Json = {
        "name": name(card.uuid),
        "attributes": _attributes(card, driver_version),
        "capacity": amounts,
    }
    if kept.consumable:
        amounts[CONTAINERS] = _capacity(containers, "", least=1, default=1, kept=kept)
        found["allowMultipleAllocations"] = True
    if taints:
        found["taints"] = taints
    return found


def _attributes(card: Card, driver_version: str) -> Json:
    texts = {
        "uuid": card.uuid,
        "model": card.model,
        "architecture": card.architecture,
        "type": "mig" if card.mig else "gpu",
        # That of its first container is left out: it goes with that container.
        "policy": card.policy or "",
    }
    found: Json = {key: {"string": text[:_TEXT_MAX_CHARS]} for key, text in texts.items() if text}
    found["index"] = {"int": card.index}
    # MIG instances of one GPU have one minor, and a container gets one of them at most.
    found["minor"] = {"int": card.minor}
    if (version := _semantic(driver_version)) is not None:
        found["driverVersion"] = {"version": version}
    return found


def _semantic(version: str) -> str | None:
    """580.65.06 is no semantic version, whose numbers have no leading zeros; None for what cannot be one."""
    parts = version.split(".")
    if len(parts) > 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return ".".join(str(int(part)) for part in [*parts, "0", "0"][:3])


def _capacity(value: int, unit: str, *, least: int, default: int, kept: Kept) -> Json:
    """Requests are rounded up to a step of one."""
    found: Json = {"value": f"{value}{unit}"}
    if not kept.consumable:
        return found
    if least < value:
        steps: Json = {"validRange": {"min": f"{least}{unit}", "max": f"{value}{unit}", "step": f"1{unit}"}}
    else:
        # A range of one value is none to the API.
        steps, default = {"validValues": [f"{value}{unit}"]}, value
    found["requestPolicy"] = {"default": f"{default}{unit}", **steps}
    return found


def as_kept(found: Json, written: Json) -> Kept:
    """Members that the API server kept of a device that was written with all of them."""
    return Kept(
        consumable=bool(found.get("allowMultipleAllocations"))
        or not written.get("allowMultipleAllocations"),
        taints=bool(found.get("taints")) or not written.get("taints"),
    )


def comparable(value: Any, member: str = "") -> Any:
    """A device without what the API server writes in its own way: quantities, and when a taint was added."""
    if isinstance(value, dict):
        return {key: comparable(each, key) for key, each in value.items() if key != "timeAdded"}
    if isinstance(value, list):
        return [comparable(each, member) for each in value]
    if member in ("value", "default", "min", "max", "step", "validValues"):
        try:
            return quantity.read(value)
        except ValueError:
            return value
    return value


def mib(amount: Fraction) -> int:
    """Bytes in MiB, rounded down: no container gets more than was accounted for."""
    return int(amount / (1 << 20))

"""From a ResourceClaim, as the API server has it, to what mgpud and kubelet are told of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.api import quantity
from cluster.dra import DRIVER
from cluster.dra.devices import CONTAINERS, CORE, CORE_PERCENT, MEMORY, mib
from cluster.dra.parameters import merged
from cluster.resources.inventory import Card
from oci_specs.claim import Claim, ClaimedCard, ClaimedRequest, Pod
from oci_specs.forms import MIN_MIB
from oci_specs.refusal import Refusal

Json = dict[str, Any]
MALFORMED = (LookupError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Allocated:
    """One device of the claim on this node. request: its main name; share_id: "" where a claim has all."""

    request: str
    pool: str
    device: str
    share_id: str


def read(claim: Json, uid: str, node: str, cards: Mapping[str, Card]) -> tuple[Claim, list[Allocated]]:
    """cards: this node's, by their devices' names. Refusal for what mgpu cannot give.

    One of MALFORMED for what no API server lets through.
    """
    meta, status = claim["metadata"], claim.get("status") or {}
    name = f"{meta['namespace']}/{meta['name']}"
    if meta["uid"] != uid:
        raise _refused(name, "it was deleted, and another has its name", "delete the pod that used it")
    devices = (status.get("allocation") or {}).get("devices") or {}
    results = [each for each in devices.get("results") or [] if each["driver"] == DRIVER]
    if not results:
        raise _refused(name, f"nothing of {DRIVER} is allocated for it", "wait until it is scheduled again")
    allocated: list[Allocated] = []
    requests: dict[str, ClaimedRequest] = {}
    for result in results:
        main = result["request"].partition("/")[0]
        card = _card(name, result, node, cards)
        said = merged(devices.get("config") or [], result["request"])
        containers, share = _share(name, result, card, said)
        made = ClaimedRequest(
            name=main,
            qos=said.get("class", "online"),
            policy=said.get("policy"),
            containers=containers,
            cards=(share,),
        )
        requests[main] = _joined(requests.get(main), made)
        allocated.append(Allocated(main, result["pool"], result["device"], result.get("shareID") or ""))
    return (
        Claim(
            uid=uid,
            namespace=meta["namespace"],
            name=meta["name"],
            pods=reserved_for(claim),
            requests=tuple(requests[each] for each in sorted(requests)),
        ),
        allocated,
    )


def reserved_for(claim: Json) -> tuple[Pod, ...]:
    """The pods that the claim is reserved for."""
    consumers = (claim.get("status") or {}).get("reservedFor") or []
    return tuple(
        Pod(name=each["name"], uid=each["uid"])
        for each in consumers
        if each.get("resource") == "pods" and not each.get("apiGroup")
    )


def _joined(first: ClaimedRequest | None, other: ClaimedRequest) -> ClaimedRequest:
    """Several devices of one request differ in nothing but the card."""
    if first is None:
        return other
    return ClaimedRequest(
        name=first.name,
        qos=first.qos,
        policy=first.policy,
        containers=first.containers,
        cards=first.cards + other.cards,
    )


def _card(claim: str, result: Json, node: str, cards: Mapping[str, Card]) -> Card:
    if result.get("adminAccess"):
        raise _refused(
            claim,
            "administrative access is not offered: what a container sees of a GPU is its own share",
            "read a GPU's use from mgpud's metrics",
        )
    card = cards.get(result["device"])
    if result["pool"] != node or card is None:
        raise _refused(
            claim,
            f"device {result['pool']}/{result['device']} is no GPU of this node",
            "delete the pod, so that the claim is allocated anew",
        )
    if not card.healthy:
        raise _refused(
            claim, f"GPU {card.uuid} is lost", "delete the pod, so that the claim is allocated anew"
        )
    return card


def _share(claim: str, result: Json, card: Card, said: Json) -> tuple[int, ClaimedCard]:
    """(How many containers share it, what they share); all of the card where nothing was consumed."""
    consumed = {
        key.removeprefix(f"{DRIVER}/"): quantity.read(amount)
        for key, amount in (result.get("consumedCapacity") or {}).items()
    }
    containers = int(said.get(CONTAINERS, consumed.get(CONTAINERS, 1)))
    if not consumed:
        return containers, ClaimedCard(uuid=card.uuid)
    memory_mib, core = mib(consumed[MEMORY]), int(consumed[CORE])
    if memory_mib >= card.memory_mib and core in (0, CORE_PERCENT):
        # No other container is on the card, however many of its places are consumed.
        return containers, ClaimedCard(uuid=card.uuid)
    if containers != consumed[CONTAINERS]:
        raise _refused(
            claim,
            f"its parameters say {containers} containers, and it consumes {consumed[CONTAINERS]} of that capacity",
            "write it under capacity.requests alone",
        )
    if memory_mib < MIN_MIB * containers or 0 < core < containers:
        raise _refused(
            claim,
            f"{memory_mib} MiB and core {core} are too little for {containers} containers",
            f"claim at least {MIN_MIB} MiB, and core 1 if any, for each of them",
        )
    return containers, ClaimedCard(uuid=card.uuid, memory_mib=memory_mib, core_percent=core or None)


def _refused(claim: str, why: str, hint: str) -> Refusal:
    return Refusal("claim-refused", f"claim {claim}: {why}", hint)

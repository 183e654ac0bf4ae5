"""From the API server's objects to what the scheduler needs of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cluster.api import quantity
from cluster.resources import wanted
from cluster.resources.inventory import Inventory
from cluster.resources.table import RESOURCES
from cluster.scheduler import selectors
from cluster.scheduler.groups import Group, group_of
from cluster.scheduler.members import items, members, texts
from cluster.scheduler.pods import Container, Placed, Pod
from oci_specs import forms, parse, vocabulary
from oci_specs.refusal import Refusal
from oci_specs.request import Request

# Those that requests are read from: what HAMi's names come to stands beside them under ours.
_OURS = tuple(each.name for each in RESOURCES if not each.opt_in)
_ENDED = ("Succeeded", "Failed")
# What kubelet calls a pod that it does not take in: no plugin has devices for it, or there is no room.
_NO_DEVICES = "UnexpectedAdmissionError"
_NO_ROOM = "OutOf"


@dataclass(frozen=True, kw_only=True)
class Units:
    """The nodes' rules that decide about a request, one set for the cluster: the extender reads a pod
    before it has a node.
    """

    aliyun_unit: str = "gib"
    visible_devices_all: str = "ignore"


@dataclass(frozen=True, kw_only=True)
class Known:
    """A pod as the API server has it. node: "" while it has none. placed: None where its annotation is
    missing or malformed. group: the gang that it is of; is_gated: it has scheduling gates.

    lenders: init containers, each with the container whose cards it uses before that one starts. preempts:
    whether it may have others evicted. is_taken: kubelet has taken it in. is_refused: kubelet had no devices
    for it. prefers: whether it has preferences among nodes that are not about
    cards. refusal: why its request is none; its pod then has no containers. version: its
    resourceVersion.
    """

    pod: Pod
    node: str = ""
    placed: Placed | None = None
    ended: bool = False
    is_taken: bool = False
    is_refused: bool = False
    terminating: bool = False
    nominated: str = ""
    lenders: Mapping[str, str] = field(default_factory=dict)
    preempts: bool = True
    prefers: bool = False
    refusal: Refusal | None = None
    version: str = ""
    group: Group | None = None
    is_gated: bool = False


def read_pod(value: Mapping[str, Any], units: Units) -> Known:
    meta, spec, status = (members(value, name) for name in ("metadata", "spec", "status"))
    annotations = texts(meta, "annotations")
    refusal = None
    containers: list[Container] = []
    lenders: dict[str, str] = {}
    try:
        containers, lenders = _containers(spec, annotations, units)
    except Refusal as error:
        refusal = error
    cpu, memory = _requests(spec)
    pod = Pod(
        uid=str(meta.get("uid", "")),
        namespace=str(meta.get("namespace", "")),
        name=str(meta.get("name", "")),
        cpu_milli=cpu,
        memory_mib=memory,
        containers=tuple(containers),
        priority=_whole(spec.get("priority")),
        created_s=_seconds(meta.get("creationTimestamp")),
        wanted=wanted.read(annotations),
    )
    return Known(
        pod=pod,
        node=str(spec.get("nodeName") or ""),
        placed=_placed(annotations, lenders),
        ended=status.get("phase") in _ENDED,
        is_taken=bool(status.get("startTime")) or status.get("phase") == "Running",
        is_refused=_is_refused(status),
        terminating=bool(meta.get("deletionTimestamp")),
        nominated=str(status.get("nominatedNodeName") or ""),
        lenders=lenders,
        preempts=spec.get("preemptionPolicy") != "Never",
        prefers=selectors.prefers(spec),
        refusal=refusal,
        version=str(meta.get("resourceVersion") or ""),
        group=group_of(meta, spec),
        is_gated=bool(spec.get("schedulingGates")),
    )


def _is_refused(status: Mapping[str, Any]) -> bool:
    reason = str(status.get("reason") or "")
    return status.get("phase") == "Failed" and (
        reason == _NO_DEVICES or any(reason == _NO_ROOM + each.name for each in RESOURCES)
    )


def annotation_of(placed: Placed, lenders: Mapping[str, str]) -> dict[str, list[str]]:
    """The pod's annotation: init containers too."""
    named = {container: list(uuids) for container, uuids in placed.items()}
    return named | {init: list(placed[lender]) for init, lender in lenders.items() if lender in placed}


def node_resources(value: Mapping[str, Any]) -> tuple[int, int]:
    """Thousandths of a CPU and MiB that the node has for pods."""
    allocatable = members(members(value, "status"), "allocatable")
    return quantity.milli(allocatable.get("cpu", 0)), quantity.mib(allocatable.get("memory", 0))


def _containers(
    spec: Mapping[str, Any], annotations: Mapping[str, str], units: Units
) -> tuple[list[Container], dict[str, str]]:
    """Containers that ask for cards, and init containers that use others' cards first.

    A container with limits of ours asks; where none has any, each one that the pod's annotations or its own
    environment make ask, as mgpud has it.
    """
    main, init = items(spec, "containers"), items(spec, "initContainers")
    limited = [each for each in (*main, *init) if _is_limited(each)]
    asking = limited or [*main, *init]
    requests = {
        str(each.get("name", "")): request
        for each in asking
        if (request := _request(each, annotations, units)) is not None
    }
    plain_init = [
        str(each.get("name", ""))
        for each in init
        if each in asking and each.get("restartPolicy") != "Always"
    ]
    lenders = {}
    for name in plain_init:
        lender = next(
            (
                other
                for other in requests
                if other not in plain_init and requests[other] == requests.get(name)
            ),
            None,
        )
        if lender is not None:
            lenders[name] = lender
    return [
        Container(name=name, request=request) for name, request in requests.items() if name not in lenders
    ], lenders


def _is_limited(container: Mapping[str, Any]) -> bool:
    limits = members(members(container, "resources"), "limits")
    return any(quantity.whole(limits[name]) for name in _OURS if name in limits)


def _request(container: Mapping[str, Any], annotations: Mapping[str, str], units: Units) -> Request | None:
    limits = members(members(container, "resources"), "limits")
    said = vocabulary.admission_annotations(annotations)
    said.pop(vocabulary.PLACEMENT, None)
    for name in _OURS:
        number = quantity.whole(limits[name]) if name in limits else None
        if number:
            said[name] = str(number)
    env = {
        str(each.get("name")): each["value"]
        for each in items(container, "env")
        if isinstance(each.get("value"), str)
    }
    return parse.request(said, vocabulary.admission_env(env), units, container_id="")


def _placed(annotations: Mapping[str, str], lenders: Mapping[str, str]) -> Placed | None:
    text = annotations.get(vocabulary.PLACEMENT)
    found = None if text is None else forms.FORMS["placement"].read(text)
    return None if found is None else {name: cards for name, cards in found.items() if name not in lenders}


def _requests(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Of the whole pod: containers and sidecars together, and no less than its largest init container."""
    init = items(spec, "initContainers")
    sidecars = [each for each in init if each.get("restartPolicy") == "Always"]

    def asked(containers: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
        found = [members(members(each, "resources"), "requests") for each in containers]
        return [(quantity.milli(each.get("cpu", 0)), quantity.mib(each.get("memory", 0))) for each in found]

    together = asked([*items(spec, "containers"), *sidecars])
    largest = asked(init)
    overhead = members(spec, "overhead")
    cpu = max(sum(cpu for cpu, _ in together), *(cpu for cpu, _ in largest), 0)
    memory = max(sum(memory for _, memory in together), *(memory for _, memory in largest), 0)
    return cpu + quantity.milli(overhead.get("cpu", 0)), memory + quantity.mib(overhead.get("memory", 0))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _seconds(value: object) -> float:
    """Of the API server's clock; 0 where it tells no time."""
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return 0.0


def units_of(inventories: Iterable[Inventory]) -> Units:
    """Of a cluster with these nodes: those of the node with the largest cards."""
    known = [each for each in inventories if each.healthy]
    if not known:
        return Units()
    largest = max(known, key=lambda each: min(card.memory_mib for card in each.healthy))
    return Units(aliyun_unit=largest.rules.aliyun_unit)

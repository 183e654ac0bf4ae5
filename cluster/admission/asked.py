"""A pod's requests, by container."""

from collections.abc import Mapping
from typing import Any

from cluster.admission import names, shapes
from cluster.admission.names import Settings
from cluster.admission.shapes import every_container_of, limits_of
from cluster.api import quantity
from cluster.resources.table import blocks_of
from oci_specs import forms, vocabulary
from oci_specs.vocabulary import CORE, MEMORY, RECLAIMABLE_MEMORY, Key


def asks(settings: Settings, pod: Mapping[str, Any], *also: Mapping[str, str]) -> bool:
    """Whether a pod asks by limits, annotations or labels, or would with also, such as its workload's."""
    for named in (shapes.annotations_of(pod), shapes.labels_of(pod), *also):
        if not named.keys().isdisjoint(names.ASKING):
            return True
    return any(is_limited(settings, container) for container in every_container_of(pod))


def is_limited(settings: Settings, container: Mapping[str, Any]) -> bool:
    return not limits_of(container).keys().isdisjoint(settings.resources)


def gives_way(pod: Mapping[str, Any]) -> bool:
    """Whether a container of the pod asks for memory that gives way: the whole pod is offline then."""
    return RECLAIMABLE_MEMORY in shapes.annotations_of(pod) or any(
        RECLAIMABLE_MEMORY in limits_of(container) for container in every_container_of(pod)
    )


def form(name: str) -> forms.Form:
    # ACK's device plugin counts in GiB units or in MiB, by the node: any whole number may be right.
    return forms.FORMS["gib-units" if name == "aliyun-units" else name]


def is_right(key: Key, text: str) -> bool:
    return form(key.form).read(text) is not None


def targets(settings: Settings, pod: Mapping[str, Any]) -> list[str]:
    """The containers that the pod's annotations are about; [] where that cannot be told.

    Those that have limits of ours; else the only one; else the one that kubectl's annotation names.
    """
    all_containers = shapes.containers_of(pod)
    limited = [
        str(container.get("name", "")) for container in all_containers if is_limited(settings, container)
    ]
    if limited:
        return limited
    found = [str(container.get("name", "")) for container in all_containers]
    if len(found) == 1:
        return found
    return [name for name in found if name == shapes.annotations_of(pod).get(names.DEFAULT_CONTAINER)]


def lacking(settings: Settings, pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, str]:
    """The limits that the pod's annotations claim and a container does not have, by resource."""
    annotations = shapes.annotations_of(pod)
    has = limits_of(container)
    found = {}
    for meaning in (MEMORY, CORE):
        if has.keys().isdisjoint(settings.of_meaning(meaning)):
            for key in names.AMOUNTS:
                text = annotations.get(key.name)
                if key.meaning == meaning and text is not None and is_right(key, text):
                    found[key.name] = str(int(text))
    if any(key.name in annotations for key in names.AMOUNTS) or is_limited(settings, container):
        return found
    # Cards and no amount: whole cards.
    count = cards(annotations)
    return {names.GPUS: count} if count else found


def cards(annotations: Mapping[str, str]) -> str:
    """How many cards annotations name; "" for none that can be read."""
    for name in names.COUNTS:
        if name in annotations:
            if name == names.LIST:
                each = numbers(annotations[name])
                return str(each[0]) if len(set(each)) == 1 and each[0] > 0 else ""
            read = forms.FORMS["count-or-uuids" if name == names.GPUS else "count"].read(annotations[name])
            return "" if read is None else str(read.count)
    return ""


def mib(settings: Settings, container: Mapping[str, Any]) -> list[int]:
    """The container's limits in MiB, each that is a whole number."""
    has = limits_of(container)
    found = [quantity.whole(has[name]) for name in settings.mib_resources if name in has]
    return [number for number in found if number is not None]


def blocks(memory_mib: int) -> dict[str, str]:
    """The limits that amount to so many MiB: whole blocks, and what is spare in the last."""
    number, spare = blocks_of(memory_mib)
    return {vocabulary.BLOCKS: str(number), **({vocabulary.SPARE: str(spare)} if spare else {})}


def numbers(text: str) -> list[int]:
    """The numbers of a list of GPUs, one a container; [] for what is no such list."""
    return forms.FORMS["count-list"].read(text) or []

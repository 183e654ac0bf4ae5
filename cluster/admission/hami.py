"""HAMi's limits under our names: its amounts are of each GPU, ours are of all GPUs of the container."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cluster.admission import names
from cluster.admission.shapes import annotations_of, every_container_of, items, limits_of
from cluster.api import quantity
from cluster.resources import wanted
from oci_specs import vocabulary
from oci_specs.refusal import Refusal, quoted

# What HAMi's users name in their pods; mgpu's are put in their place.
SCHEDULER = "hami-scheduler"
RUNTIME_CLASS = "nvidia"
GPU, MEMORY, PERCENTAGE, CORES, PRIORITY = names.HAMI
PRIORITY_VARIABLE = "CUDA_TASK_PRIORITY"
CLASSES = {"0": vocabulary.ONLINE, "1": vocabulary.OFFLINE}

MODE = "nvidia.com/vgpu-mode"
_MIG = "mig"
_MODES = ("hami-core", _MIG, "mps")
_ALLOWED = {
    wanted.NODES: wanted.POLICIES,
    wanted.CARDS: (*wanted.POLICIES, wanted.IDLE, "topology-aware", "numa"),
    MODE: _MODES,
}
# What HAMi does by it and mgpu does not.
_IGNORED = {
    "nvidia.com/numa-bind": "mgpu knows no NUMA nodes of GPUs",
    "hami.io/device-scoring-weights": "mgpu scores GPUs by one measure",
}
_IGNORED_POLICIES = ("topology-aware", "numa")


def asks(pod: Mapping[str, Any]) -> bool:
    return any(not limits_of(each).keys().isdisjoint(names.HAMI) for each in every_container_of(pod))


def limits(container: Mapping[str, Any]) -> dict[str, str]:
    """The limits of ours that a container's of HAMi's come to; {} where it has none, or asks for no GPU.

    As in HAMi: one GPU where only an amount is said, all of its memory where no amount of that is said, and
    no limit of its time where none is said.
    """
    amounts = _amounts(container)
    memory, percent, cores = (amounts.get(name, 0) for name in (MEMORY, PERCENTAGE, CORES))
    count = amounts.get(GPU, 1)
    if not count or not (GPU in amounts or memory or percent or cores):
        return {}
    found = {names.GPUS: count} if GPU in amounts else {}
    if memory:
        found[vocabulary.MEMORY_MIB] = memory * count
    elif percent or cores:
        found[vocabulary.MEMORY_PERCENT] = percent or 100
    if cores:
        found[names.CORE_OF_OURS] = min(cores, 100) * count
    return {name: str(number) for name, number in found.items()}


def priorities(pod: Mapping[str, Any]) -> set[str]:
    """Of the containers that say one, 0 before 1."""
    found = set()
    for container in every_container_of(pod):
        if PRIORITY in limits_of(container):
            found.add(str(_amounts(container).get(PRIORITY, limits_of(container)[PRIORITY])))
        else:
            env = items(container, "env")
            found |= {str(each.get("value")) for each in env if each.get("name") == PRIORITY_VARIABLE}
    return found


def refusals(pod: Mapping[str, Any], changed: Iterable[Mapping[str, Any]]) -> Iterator[Refusal]:
    """Of these containers, those whose limits of ours and of HAMi's disagree; and a pod of two classes."""
    for container in changed:
        percent, has = _amounts(container).get(PERCENTAGE, 0), limits_of(container)
        if percent > 100:
            yield _bad_value(PERCENTAGE, str(percent), "0 to 100")
        for name, number in limits(container).items():
            if name in has and quantity.whole(has[name]) != int(number):
                yield Refusal(
                    "limits-disagree",
                    f"{name} {has[name]} and HAMi's names, which come to {number} of it, limits of container "
                    f"{quoted(container.get('name', ''))}, disagree",
                    f"leave {name} out: mgpu adds it",
                )
    if not asks(pod) or not changed:
        return
    found = sorted(priorities(pod))
    for text in found:
        if text not in CLASSES:
            yield _bad_value(PRIORITY, text, "0 (online) or 1 (offline)")
    if len(found) > 1:
        yield Refusal(
            "keys-disagree",
            f"{PRIORITY} is {' and '.join(found)} in containers of one pod, and a pod has one class",
            "let all say the same, or make two pods",
        )


def bad_wishes(pod: Mapping[str, Any]) -> Iterator[Refusal]:
    """Annotations that choose GPUs, with a value that says nothing here."""
    annotations = annotations_of(pod)
    long = wanted.too_long(annotations)
    for name in long:
        yield Refusal(
            "bad-value",
            f"{name} has more than {wanted.WORDS_MAX} words or {wanted.CHARS_MAX} characters",
            "name fewer",
        )
    for name, allowed in _ALLOWED.items():
        if name in long:
            continue
        for word in wanted.words(annotations.get(name, "")):
            if word not in allowed:
                yield _bad_value(name, annotations[name], f"{', '.join(allowed[:-1])} or {allowed[-1]}")
    if wanted.words(annotations.get(MODE, "")) == (_MIG,):
        yield Refusal(
            "no-mig-made",
            f"{MODE} is {quoted(_MIG)}, and mgpu makes no MIG instances",
            "leave it out for a share of a GPU, or of an instance that the node's operator has made",
        )


def warnings(pod: Mapping[str, Any]) -> list[str]:
    """What is served without a wish that HAMi would grant."""
    annotations = annotations_of(pod)
    found = [f"mgpu: {name} has no effect: {why}" for name, why in _IGNORED.items() if name in annotations]
    ignored = [each for each in wanted.words(annotations.get(wanted.CARDS, "")) if each in _IGNORED_POLICIES]
    if ignored:
        found.append(
            f"mgpu: {wanted.CARDS} {', '.join(ignored)} has no effect: mgpu knows no links between GPUs"
        )
    return found


def _amounts(container: Mapping[str, Any]) -> dict[str, int]:
    has = limits_of(container)
    found = {name: quantity.whole(has[name]) for name in names.HAMI if name in has}
    return {name: number for name, number in found.items() if number is not None}


def _bad_value(name: str, text: str, allowed: str) -> Refusal:
    return Refusal("bad-value", f"{name} is {quoted(text)}", f"allowed: {allowed}")

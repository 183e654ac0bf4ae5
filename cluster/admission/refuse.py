"""Admission's refusals, one line each, and its warnings."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from cluster.admission import asked, hami, names, shapes
from cluster.admission.names import Settings
from cluster.admission.shapes import POD, Shape, annotations_of, every_container_of, labels_of, limits_of
from cluster.api import quantity
from oci_specs.refusal import Refusal, quoted
from oci_specs.vocabulary import BLOCKS, MEMORY_RECLAIMABLE, OFFLINE, QOS, RECLAIMABLE_MEMORY, SPARE


def refusal(
    shape: Shape, manifest: Mapping[str, Any], old: Mapping[str, Any], settings: Settings
) -> Refusal | None:
    """Why the manifest may not be, as it is after admission's own changes; None where it may.

    What was there before the update and is as it was is not judged: an object of the time before mgpu can
    still be changed and deleted.
    """
    return next(_refusals(shape, manifest, old, settings), None)


def _refusals(
    shape: Shape, manifest: Mapping[str, Any], old: Mapping[str, Any], settings: Settings
) -> Iterator[Refusal]:
    pod, old_pod = shape.pod(manifest), shape.pod(old)
    places = [(annotations_of(pod), annotations_of(old_pod))]
    if shape is not POD:
        places.append((annotations_of(manifest), annotations_of(old)))
    for now, before in places:
        yield from _reserved(now, before)
    every = every_container_of(pod)
    changed = every if every != every_container_of(old_pod) else []
    yield from _unknown([*places, (labels_of(pod), labels_of(old_pod))], changed)
    if settings.hami:
        yield from hami.refusals(pod, changed)
    for container in changed:
        yield from _limits(settings, container)
        yield from _blocks(settings, container)
    ephemeral = shapes.ephemeral_of(pod)
    for container in changed + (ephemeral if ephemeral != shapes.ephemeral_of(old_pod) else []):
        yield from _variables(container)
    if _is_fresh(pod, old_pod) and asked.asks(settings, pod):
        yield from _values(pod)
        yield from hami.bad_wishes(pod)
        yield from _places(pod)
        yield from _labels(pod)
        yield from _unlimited(settings, shape, pod, is_new=not old)
        yield from _said_twice(settings, pod)
        yield from _not_offline(shape, pod)


def _is_fresh(pod: Mapping[str, Any], old_pod: Mapping[str, Any]) -> bool:
    """Whether anything that the rules about amounts read is new."""
    now, before = annotations_of(pod), annotations_of(old_pod)
    return (
        any(now.get(name) != before.get(name) for name in names.ANNOTATIONS)
        or labels_of(pod) != labels_of(old_pod)
        or shapes.containers_of(pod) != shapes.containers_of(old_pod)
    )


def _reserved(now: Mapping[str, str], before: Mapping[str, str]) -> Iterator[Refusal]:
    for name in names.RESERVED:
        if now.get(name) != before.get(name):
            yield Refusal("reserved-key", f"{name} is written by mgpu alone", "leave it out, or as it was")


def _unknown(
    places: list[tuple[Mapping[str, str], Mapping[str, str]]], changed: list[Mapping[str, Any]]
) -> Iterator[Refusal]:
    fresh = [name for now, before in places for name in now if now[name] != before.get(name)]
    for name in names.unknown([*fresh, *(name for container in changed for name in limits_of(container))]):
        yield Refusal(
            "unknown-key", f"{quoted(name)} is not a key of mgpu", f"allowed: {names.allowed(name)}"
        )


def _variables(container: Mapping[str, Any]) -> Iterator[Refusal]:
    for name in shapes.variables_of(container):
        if name in names.VARIABLES or name.startswith(names.CLAIM_VARIABLES):
            yield Refusal(
                "variable-of-pod",
                f"{name} is a variable of container {quoted(container.get('name', ''))}, and in pods variables "
                "ask for nothing",
                "leave it out, and write a limit such as mgpu.dev/memory-mib",
            )


def _values(pod: Mapping[str, Any]) -> Iterator[Refusal]:
    annotations = annotations_of(pod)
    for form, keys in names.FORMS.items():
        for name in keys:
            if name in annotations and asked.form(form).read(annotations[name]) is None:
                value = quoted(annotations[name])
                yield Refusal("bad-value", f"{name} is {value}", f"allowed: {asked.form(form).allowed}")


def _places(pod: Mapping[str, Any]) -> Iterator[Refusal]:
    text = annotations_of(pod).get(names.LIST, "")
    if len(set(asked.numbers(text))) > 1:
        yield Refusal(
            "position-unknown",
            f"{names.LIST} is {quoted(text)}, and no container knows its place in the pod",
            f"write {names.GPUS} as a limit of each container instead, or the same number for all",
        )


def _labels(pod: Mapping[str, Any]) -> Iterator[Refusal]:
    annotations, labelled = annotations_of(pod), labels_of(pod)
    for name in names.ANNOTATIONS:
        if name in annotations and name in labelled and annotations[name] != labelled[name]:
            yield Refusal(
                "keys-disagree",
                f"{name} is {quoted(labelled[name])} as a label and {quoted(annotations[name])} as an annotation",
                "keep one of them, or let both say the same",
            )


def _unlimited(
    settings: Settings, shape: Shape, pod: Mapping[str, Any], *, is_new: bool
) -> Iterator[Refusal]:
    """An amount that only an annotation claims, and that no container gets as its limit.

    A template's pods get theirs when they are made, and so does a new pod. A pod that is there gets none.
    """
    annotations = annotations_of(pod)
    if (shape is not POD or is_new) and asked.targets(settings, pod):
        return
    own = shapes.containers_of(pod)
    for key in names.AMOUNTS:
        others = settings.of_meaning(key.meaning)
        if key.name in annotations and not any(
            name in limits_of(container) for container in own for name in others
        ):
            yield _no_limit(key.name, annotations[key.name])
    says_amount = any(key.name in annotations for key in names.AMOUNTS)
    says_amount = says_amount or any(asked.is_limited(settings, container) for container in own)
    if asked.cards(annotations) and not says_amount:
        yield from (_no_limit(name, annotations[name]) for name in names.COUNTS if name in annotations)


def _no_limit(name: str, value: str) -> Refusal:
    return Refusal(
        "no-limit",
        f"{name} {quoted(value)} is an annotation and no container's limit",
        "write it as the limit of the container that it is for, "
        f"or name that one in {names.DEFAULT_CONTAINER} of a new pod",
    )


def _said_twice(settings: Settings, pod: Mapping[str, Any]) -> Iterator[Refusal]:
    """An annotation that disagrees with a limit of the same meaning, in whichever units."""
    annotations = annotations_of(pod)
    for name, container, resource in product(
        (key.name for key in names.AMOUNTS), shapes.containers_of(pod), settings.units
    ):
        limit, text = quantity.whole(limits_of(container).get(resource, "")), annotations.get(name, "")
        if limit is None or not text.isdigit() or _agree(settings, name, int(text), resource, limit):
            continue
        yield Refusal(
            "limit-differs",
            f"{name} {quoted(text)} as an annotation and {resource} {limit}, a limit of container "
            f"{quoted(container.get('name', ''))}, disagree",
            "leave the annotation out, or let both say the same",
        )


def _agree(settings: Settings, name: str, number: int, other: str, other_number: int) -> bool:
    """Whether two amounts are of different meanings, or the same."""
    one, two = settings.units[name], settings.units[other]
    if one.meaning != two.meaning:
        return True
    return one.measure == two.measure and number * one.number == other_number * two.number


def _not_offline(shape: Shape, pod: Mapping[str, Any]) -> Iterator[Refusal]:
    """Memory that gives way, in a pod that is not offline or does not say so: mgpud reads its annotations
    alone. A template's pods are given what is missing.
    """
    if not asked.gives_way(pod):
        return
    annotations = annotations_of(pod)
    bad = [name for name in names.CLASSES if annotations.get(name, OFFLINE) not in names.OFFLINE_VALUES]
    if shape is POD and annotations.keys().isdisjoint(names.CLASSES):
        bad.append(QOS)
    if annotations.get(MEMORY_RECLAIMABLE, "" if shape is POD else "true") != "true":
        bad.append(MEMORY_RECLAIMABLE)
    for name in bad:
        yield Refusal(
            "not-offline",
            f"{RECLAIMABLE_MEMORY} is memory of offline containers that gives way, and "
            f"{name} is {quoted(annotations.get(name, ''))}",
            f"let {QOS} be {OFFLINE} and {MEMORY_RECLAIMABLE} true, or ask for mgpu.dev/memory-mib",
        )


def _limits(settings: Settings, container: Mapping[str, Any]) -> Iterator[Refusal]:
    """Limits of one meaning that disagree."""
    has = {name: quantity.whole(limits_of(container).get(name, "")) for name in settings.units}
    for (name, number), (other, other_number) in product(has.items(), has.items()):
        if number is None or other_number is None:
            continue
        if not _agree(settings, name, number, other, other_number):
            yield Refusal(
                "limits-disagree",
                f"{name} {number} and {other} {other_number}, limits of container "
                f"{quoted(container.get('name', ''))}, disagree",
                "keep one of them, or let both say the same",
            )


def _blocks(settings: Settings, container: Mapping[str, Any]) -> Iterator[Refusal]:
    """Limits in blocks that are not what the limit in MiB comes to; admission adds right ones itself."""
    has = {
        name: str(quantity.whole(value))
        for name, value in limits_of(container).items()
        if name in names.RESERVED
    }
    memory = asked.mib(settings, container)
    if has and (not memory or has != asked.blocks(memory[0])):
        yield Refusal(
            "bad-blocks",
            f"{BLOCKS} and {SPARE} of container {quoted(container.get('name', ''))} are not its limit in MiB",
            "leave both out: mgpu adds them",
        )

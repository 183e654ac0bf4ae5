"""Admission's changes to a manifest, as a JSON patch."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.admission import asked, hami, names, shapes
from cluster.admission.names import Settings
from cluster.admission.shapes import POD, Shape, annotations_of, labels_of
from oci_specs.vocabulary import BLOCKS, MEMORY_RECLAIMABLE, OFFLINE, ONLINE, QOS, SPARE

Patch = list[dict[str, Any]]


def patch(shape: Shape, manifest: Mapping[str, Any], old: Mapping[str, Any], settings: Settings) -> Patch:
    """From the manifest to what it should be; [] where nothing is to be changed.

    old: what was there before, {} for a new object.
    """
    return list(_between("", manifest, changed(shape, manifest, old, settings)))


def changed(
    shape: Shape, manifest: Mapping[str, Any], old: Mapping[str, Any], settings: Settings
) -> dict[str, Any]:
    """The manifest as it should be."""
    after = copy.deepcopy(dict(manifest))
    if shape is not POD:
        if not is_owned(manifest):
            _workload(shape, after, old, settings)
    elif not old and names.MIRROR_POD not in annotations_of(manifest):
        _pod(after, settings)
    return after


def is_owned(manifest: Mapping[str, Any]) -> bool:
    """Whether a controller made it, and compares it with its own template.

    The Deployment's would make ReplicaSets for ever that never are what it wants. Nothing is compared with a
    Job.
    """
    owners = shapes.items(shapes.members(manifest, "metadata"), "ownerReferences")
    return manifest.get("kind") != "Job" and any(owner.get("controller") is True for owner in owners)


def _workload(shape: Shape, after: dict[str, Any], old: Mapping[str, Any], settings: Settings) -> None:
    """Brings the workload's annotations into its pods; what came so earlier follows the workload."""
    own, old_own = annotations_of(after), annotations_of(old)
    pod: Any = shape.pod(after)
    if not asked.asks(settings, pod, own):
        return
    there = annotations_of(pod)
    for name in names.ANNOTATIONS:
        was_brought = name in there and name in old_own and there[name] == old_own[name]
        if name in own and (name not in there or was_brought):
            _annotations(pod)[name] = own[name]
        elif name not in own and was_brought:
            del _annotations(pod)[name]


def _pod(after: dict[str, Any], settings: Settings) -> None:
    if not asked.asks(settings, after):
        return
    labels = labels_of(after)
    for name in names.ANNOTATIONS:
        if name in labels and name not in annotations_of(after):
            _annotations(after)[name] = labels[name]
    spec = after.setdefault("spec", {})
    theirs = settings.hami and hami.asks(after)
    if "runtimeClassName" not in spec or (theirs and spec["runtimeClassName"] == hami.RUNTIME_CLASS):
        spec["runtimeClassName"] = names.RUNTIME_CLASS
    nobody = ("", names.DEFAULT_SCHEDULER, *([hami.SCHEDULER] if theirs else []))
    if spec.get("schedulerName", names.DEFAULT_SCHEDULER) in nobody:
        spec["schedulerName"] = settings.scheduler
    if theirs:
        _say_hamis(after)
    named = asked.targets(settings, after)
    for container in shapes.containers_of(after):
        missing = asked.lacking(settings, after, container) if container.get("name") in named else {}
        if missing:
            _member(_member(container, "resources"), "limits").update(missing)
    for container in shapes.every_container_of(after):
        memory = asked.mib(settings, container)
        has = shapes.limits_of(container)
        if memory and memory[0] > 0 and BLOCKS not in has and SPARE not in has:
            _member(_member(container, "resources"), "limits").update(asked.blocks(memory[0]))
    if asked.gives_way(after):
        annotations = _annotations(after)
        annotations.setdefault(MEMORY_RECLAIMABLE, "true")
        if annotations.keys().isdisjoint(names.CLASSES):
            annotations[QOS] = OFFLINE


def _say_hamis(after: dict[str, Any]) -> None:
    """What HAMi's limits come to, under our names."""
    for container in shapes.every_container_of(after):
        found = hami.limits(container)
        if found:
            limits = container["resources"]["limits"]
            limits.update({name: amount for name, amount in found.items() if name not in limits})
    priorities = hami.priorities(after)
    if len(priorities) == 1 and annotations_of(after).keys().isdisjoint(names.CLASSES):
        _annotations(after)[QOS] = hami.CLASSES.get(priorities.pop(), ONLINE)


def _annotations(pod: dict[str, Any]) -> dict[str, str]:
    return _member(_member(pod, "metadata"), "annotations")


def _member(manifest: Any, name: str) -> dict[str, Any]:
    if not manifest.get(name):
        manifest[name] = {}
    made: dict[str, Any] = manifest[name]
    return made


def _between(path: str, before: Any, after: Any) -> Iterator[dict[str, Any]]:
    """The operations that make after of before; no list becomes longer or shorter here."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in after.keys() | before.keys():
            at = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in after:
                yield {"op": "remove", "path": at}
            elif name not in before:
                yield {"op": "add", "path": at, "value": after[name]}
            else:
                yield from _between(at, before[name], after[name])
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _between(f"{path}/{index}", one, other)
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}

"""CEL variables that the policies' expressions share, by the part of a manifest they are made of."""

from __future__ import annotations

from cluster.admission import cel, names
from cluster.admission.cel import limits, member, text, texts
from cluster.admission.names import Settings
from cluster.admission.shapes import POD, Shape
from oci_specs.vocabulary import CORE, MEMORY, RECLAIMABLE_MEMORY

Variables = dict[str, str]


def _old(expression: str) -> str:
    return f"oldObject == null ? {cel.NO_MAP} : {expression}"


def of_pod(shape: Shape) -> Variables:
    """The pod's own members, in the object and in what was there before."""
    pod, old = shape.cel("object"), shape.cel("oldObject")
    return {
        "annotations": member(pod, "metadata", "annotations"),
        "labels": member(pod, "metadata", "labels"),
        "oldAnnotations": _old(member(old, "metadata", "annotations")),
        "oldLabels": _old(member(old, "metadata", "labels")),
        "containers": f"{pod}.spec.containers",
        "inits": f"{pod}.spec.?initContainers.orValue([])",
        "every": "variables.containers + variables.inits",
        "ephemerals": f"{pod}.spec.?ephemeralContainers.orValue([])",
    }


def of_workload() -> Variables:
    return {
        "own": member("object", "metadata", "annotations"),
        "oldOwn": _old(member("oldObject", "metadata", "annotations")),
    }


def asks(settings: Settings, shape: Shape) -> str:
    """Whether the pod asks, or its workload in its name: change.py's and asked.py's rule."""
    said = ["variables.annotations", "variables.labels", *(() if shape is POD else ("variables.own",))]
    in_words = " || ".join(f"k in {each}" for each in said)
    return (
        f"{texts(names.ASKING)}.exists(k, {in_words}) || "
        f"variables.every.exists(c, {is_limited(settings, 'c')})"
    )


def names_variable(container: str) -> str:
    """Whether a variable is one of ours, of those in the container's manifest."""
    return f"{container}.?env.orValue([]).exists(e, {is_variable('e.name')})"


def is_variable(name: str) -> str:
    return f"({name} in {texts(names.VARIABLES)} || {name}.startsWith({text(names.CLAIM_VARIABLES)}))"


def is_limited(settings: Settings, container: str) -> str:
    return f"{texts(settings.resources)}.exists(r, r in {limits(container)})"


def gives_way() -> str:
    """asked.gives_way."""
    name = text(RECLAIMABLE_MEMORY)
    return f"{name} in variables.annotations || variables.every.exists(c, {name} in {limits('c')})"


def targets(settings: Settings) -> Variables:
    """asked.targets: the names of the containers that the pod's annotations are about."""
    return {
        "limited": f"variables.containers.filter(c, {is_limited(settings, 'c')}).map(c, c.name)",
        "targets": (
            "size(variables.limited) > 0 ? variables.limited : variables.containers.filter(c, "
            "size(variables.containers) == 1 || "
            f'c.name == variables.annotations[?{text(names.DEFAULT_CONTAINER)}].orValue("")).map(c, c.name)'
        ),
    }


def lacking(settings: Settings) -> Variables:
    """asked.lacking: the annotations whose amounts a container gets that has none of their meaning."""
    right = {
        meaning: cel.joined(
            f"{texts(own)}.filter(k, k in variables.annotations && {cel.is_right(form, 'variables.annotations[k]')})"
            for form, keys in names.FORMS.items()
            if (own := [key.name for key in names.AMOUNTS if key.name in keys and key.meaning == meaning])
        )
        for meaning in (MEMORY, CORE)
    }
    count, several, gpus = (f"variables.annotations[{text(name)}]" for name in names.COUNTS)
    return {
        "memory": right[MEMORY],
        "core": right[CORE],
        "cards": (
            f'{texts(key.name for key in names.AMOUNTS)}.exists(k, k in variables.annotations) ? "" : '
            f"{text(names.COUNTS[0])} in variables.annotations ? "
            f'({cel.is_right("count", count)} ? string(int({count})) : "") : '
            f"{text(names.LIST)} in variables.annotations ? "
            f"({cel.is_right('count-list', several)} && !({differ(several)}) && int({first(several)}) > 0 ? "
            f'string(int({first(several)})) : "") : '
            f"{text(names.GPUS)} in variables.annotations && {cel.is_right('count-or-uuids', gpus)} ? "
            f'({gpus}.matches("^[0-9]+$") ? string(int({gpus})) : string({gpus}.split(",").size())) : ""'
        ),
    }


def first(several: str) -> str:
    """The first number of a list."""
    return f'{several}.split(",")[0].trim()'


def differ(several: str) -> str:
    """Whether the numbers of a list are not all the same."""
    return f'{several}.split(",").exists(part, int(part.trim()) != int({first(several)}))'

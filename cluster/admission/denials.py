"""The refusals as lists of their lines in CEL: refuse.py in the language of the API server."""

from __future__ import annotations

from cluster.admission import asked, cel, names, variables
from cluster.admission.cel import limits, quoted, text, texts
from cluster.admission.mutations import blocks, mib, spare
from cluster.admission.names import Settings
from cluster.admission.shapes import POD, Shape
from cluster.admission.variables import Variables
from oci_specs.refusal import Refusal
from oci_specs.vocabulary import BLOCKS, MEMORY_RECLAIMABLE, OFFLINE, QOS, RECLAIMABLE_MEMORY, SPARE


def pod(settings: Settings, shape: Shape) -> Variables:
    """Variables, the last of which is the list of all lines, in the order of refuse.py."""
    workload = {} if shape is POD else variables.of_workload()
    known = {**variables.of_pod(shape), **variables.targets(settings), **workload}
    rules = {
        "cards": variables.lacking(settings)["cards"],
        **_tables(settings),
        "unknown": _unknown(shape),
        "reservedRefused": _reserved(shape),
        "unknownRefused": (
            f"size(variables.unknown) == 0 ? [] : [variables.unknown.min()].map(k, {_unknown_line()})"
        ),
        "limitsRefused": _limits(settings),
        "variablesRefused": _variables(shape),
        "valuesRefused": _values(),
        "placesRefused": _list(),
        "labelsRefused": _labels(),
        "unlimitedRefused": _unlimited(settings, shape),
        **_said_twice(settings),
        "offlineRefused": _not_offline(shape),
    }
    judged = ("values", "places", "labels", "unlimited", "differing", "offline")
    fresh = [f"variables.{each}Refused" for each in judged]
    old = shape.cel("oldObject")
    known["isNew"] = (
        "oldObject == null || variables.containers != "
        f"{old}.spec.containers || variables.inits != {old}.spec.?initContainers.orValue([])"
    )
    known["isFresh"] = (
        "(oldObject == null || "
        f"{texts(names.ANNOTATIONS)}.exists(k, variables.annotations[?k] != variables.oldAnnotations[?k]) || "
        "variables.labels != variables.oldLabels || "
        f"variables.containers != {old}.spec.containers) && ({variables.asks(settings, shape)})"
    ).replace(" || k in variables.own", "")
    lines = cel.joined(
        [
            "variables.reservedRefused",
            "variables.unknownRefused",
            "variables.isNew ? variables.limitsRefused : []",
            "variables.variablesRefused",
            f"variables.isFresh ? {' + '.join(fresh)} : []",
        ]
    )
    return {**known, **rules, "refused": lines}


def _line(message: str, hint: str, *expressions: str) -> str:
    """A refusal's line with an expression for each bar in it."""
    first, *rest = Refusal("", message, hint).line().split("|")
    parts = [text(first)]
    for expression, after in zip(expressions, rest, strict=True):
        parts += [expression, text(after)]
    return " + ".join(part for part in parts if part != text(""))


def _places(shape: Shape) -> dict[str, str]:
    """Where names stand, and what stood there before."""
    own = {} if shape is POD else {"own": "oldOwn"}
    return {"annotations": "oldAnnotations", "labels": "oldLabels", **own}


def _reserved(shape: Shape) -> str:
    line = _line("| is written by mgpu alone", "leave it out, or as it was", "k")
    return cel.joined(
        f"{texts(names.RESERVED)}.filter(k, variables.{now}[?k] != variables.{before}[?k]).map(k, {line})"
        for now, before in _places(shape).items()
        if now != "labels"
    )


def _bad_names(of: str) -> str:
    families = " || ".join(f"k.startsWith({text(family)})" for family in names.FAMILIES)
    return f"{of}.filter(k, ({families}) && !(k in {texts(names.KNOWN)}))"


def _unknown(shape: Shape) -> str:
    """The unknown names that are new, wherever they stand."""
    fresh = [
        f"{_bad_names(f'variables.{now}')}.filter(k, variables.{now}[?k] != variables.{before}[?k])"
        for now, before in _places(shape).items()
    ]
    bad = _bad_names(limits("c"))
    in_limits = f"variables.every.filter(c, size({bad}) > 0).map(c, {bad}.min())"
    return cel.joined([*fresh, f"variables.isNew ? {in_limits} : []"])


def _unknown_line() -> str:
    vendors = sorted({family.partition("/")[0] + "/" for family in names.FAMILIES})
    allowed = " : ".join(
        f"k.startsWith({text(vendor)}) ? {text(names.allowed(vendor))}" for vendor in vendors
    )
    return _line("| is not a key of mgpu", "allowed: |", quoted("k"), f'({allowed} : "")')


def _limits(settings: Settings) -> str:
    """Of each container: limits of one meaning that disagree, and then its blocks."""
    has = limits("c")
    known = texts(settings.units)
    pairs = (
        f"{known}.filter(r, r in {has} && {known}.exists(s, s in {has} && "
        f"{_differ('r', cel.whole(f'{has}[r]'), 's', cel.whole(f'{has}[s]'))}))"
    )
    second = f"{known}.filter(s, s in {has} && {_differ('r', cel.whole(f'{has}[r]'), 's', cel.whole(f'{has}[s]'))})[0]"
    line = _line(
        "| | and | |, limits of container |, disagree",
        "keep one of them, or let both say the same",
        "r",
        f"string({cel.whole(f'{has}[r]')})",
        second,
        f"string({cel.whole(f'{has}[{second}]')})",
        quoted("c.name"),
    )
    disagree = f"variables.every.filter(c, size({pairs}) > 0).map(c, {pairs}.map(r, {line})[0])"
    return cel.joined([disagree, _blocks(settings)])


def _differ(name: str, number: str, other: str, other_number: str) -> str:
    """refuse._agree, denied."""
    means, measure, unit = (f"variables.{each}" for each in ("means", "measures", "units"))
    return (
        f"{means}[{name}] == {means}[{other}] && ({measure}[{name}] != {measure}[{other}] || "
        f"{number} * {unit}[{name}] != {other_number} * {unit}[{other}])"
    )


def _tables(settings: Settings) -> Variables:
    units = settings.units
    return {
        "means": cel.table({name: unit.meaning for name, unit in units.items()}),
        "measures": cel.table({name: unit.measure for name, unit in units.items()}),
        "units": cel.table({name: unit.number for name, unit in units.items()}),
    }


def _blocks(settings: Settings) -> str:
    has = limits("c")
    memory = mib(settings, "c")
    brought = f"({text(BLOCKS)} in {has} || {text(SPARE)} in {has})"
    blocks_are = f"{cel.whole(f'{has}[{text(BLOCKS)}]')} == {blocks(f'{memory}[0]')}"
    spare_there = f"{text(SPARE)} in {has} ? {cel.whole(f'{has}[{text(SPARE)}]')} : 0"
    spare_is = f"({spare_there}) == {spare(f'{memory}[0]')}"
    right = f"size({memory}) > 0 && {text(BLOCKS)} in {has} && {blocks_are} && {spare_is}"
    line = _line(
        f"{BLOCKS} and {SPARE} of container | are not its limit in MiB",
        "leave both out: mgpu adds them",
        quoted("c.name"),
    )
    return f"variables.every.filter(c, {brought} && !({right})).map(c, {line})"


def _variables(shape: Shape) -> str:
    line = _line(
        "| is a variable of container |, and in pods variables ask for nothing",
        "leave it out, and write a limit such as mgpu.dev/memory-mib",
        f"c.env.filter(e, {variables.is_variable('e.name')})[0].name",
        quoted("c.name"),
    )
    old = shape.cel("oldObject")
    changed = f"oldObject == null || variables.ephemerals != {old}.spec.?ephemeralContainers.orValue([])"
    return cel.joined(
        f"{when} ? {of}.filter(c, {variables.names_variable('c')}).map(c, {line}) : []"
        for when, of in (("variables.isNew", "variables.every"), (f"({changed})", "variables.ephemerals"))
    )


def _values() -> str:
    bad = cel.joined(
        f"{texts(keys)}.filter(k, k in variables.annotations && "
        f"!({cel.is_right(form, 'variables.annotations[k]')}))"
        for form, keys in names.FORMS.items()
    )
    allowed = {name: asked.form(form).allowed for form, keys in names.FORMS.items() for name in keys}
    line = _line("| is |", "allowed: |", "k", quoted("variables.annotations[k]"), f"{cel.table(allowed)}[k]")
    return f"({bad}).map(k, {line})"


def _list() -> str:
    several = f"variables.annotations[{text(names.LIST)}]"
    line = _line(
        f"{names.LIST} is |, and no container knows its place in the pod",
        f"write {names.GPUS} as a limit of each container instead, or the same number for all",
        quoted(several),
    )
    return (
        f"{text(names.LIST)} in variables.annotations && {cel.is_right('count-list', several)} && "
        f"{variables.differ(several)} ? [{line}] : []"
    )


def _labels() -> str:
    line = _line(
        "| is | as a label and | as an annotation",
        "keep one of them, or let both say the same",
        "k",
        quoted("variables.labels[k]"),
        quoted("variables.annotations[k]"),
    )
    return (
        f"{texts(names.ANNOTATIONS)}.filter(k, k in variables.annotations && k in variables.labels && "
        f"variables.annotations[k] != variables.labels[k]).map(k, {line})"
    )


def _not_offline(shape: Shape) -> str:
    classes, said = texts(names.CLASSES), "variables.annotations"
    line = _line(
        f"{RECLAIMABLE_MEMORY} is memory of offline containers that gives way, and | is |",
        f"let {QOS} be {OFFLINE} and {MEMORY_RECLAIMABLE} true, or ask for mgpu.dev/memory-mib",
        "k",
        quoted(f'{said}[?k].orValue("")'),
    )
    bad = [f"{classes}.filter(k, k in {said} && !({said}[k] in {texts(names.OFFLINE_VALUES)}))"]
    if shape is POD:
        bad.append(f"{classes}.exists(k, k in {said}) ? [] : [{text(QOS)}]")
    default = text("" if shape is POD else "true")
    bad.append(
        f"{said}[?{text(MEMORY_RECLAIMABLE)}].orValue({default}) == {text('true')} "
        f"? [] : [{text(MEMORY_RECLAIMABLE)}]"
    )
    return f"!({variables.gives_way()}) ? [] : ({cel.joined(bad)}).map(k, {line})"


def _unlimited(settings: Settings, shape: Shape) -> str:
    line = _line(
        "| | is an annotation and no container's limit",
        "write it as the limit of the container that it is for, "
        f"or name that one in {names.DEFAULT_CONTAINER} of a new pod",
        "k",
        quoted("variables.annotations[k]"),
    )
    gets_some = "size(variables.targets) > 0" + (" && oldObject == null" if shape is POD else "")
    lists = []
    for meaning in dict.fromkeys(key.meaning for key in names.AMOUNTS):
        own = texts(key.name for key in names.AMOUNTS if key.meaning == meaning)
        others = texts(settings.of_meaning(meaning))
        unlimited = f"!variables.containers.exists(c, {others}.exists(r, r in {limits('c')}))"
        lists.append(f"{own}.filter(k, k in variables.annotations && {unlimited}).map(k, {line})")
    lists.append(
        f'variables.cards == "" || size(variables.limited) > 0 ? [] : '
        f"{texts(names.COUNTS)}.filter(k, k in variables.annotations).map(k, {line})"
    )
    return f"{gets_some} ? [] : {cel.joined(lists)}"


def _said_twice(settings: Settings) -> Variables:
    """The first amount that disagrees with a limit, then the container of that limit, then the line."""
    known = texts(settings.units)
    key = "variables.differing[0]"

    def differ(name: str, container: str) -> str:
        has = limits(container)
        said = f"int(variables.annotations[{name}])"
        return f"r in {has} && {_differ(name, said, 'r', cel.whole(f'{has}[r]'))}"

    limit = cel.whole(f"{limits('variables.differingFrom[0]')}[r]")
    line = _line(
        "| | as an annotation and | |, a limit of container |, disagree",
        "leave the annotation out, or let both say the same",
        key,
        quoted(f"variables.annotations[{key}]"),
        "r",
        f"string({limit})",
        quoted("variables.differingFrom[0].name"),
    )
    amounts = texts(key.name for key in names.AMOUNTS)
    return {
        "differing": (
            f'{amounts}.filter(k, variables.annotations[?k].orValue("").matches("^[0-9]{{1,9}}$") && '
            f"variables.containers.exists(c, {known}.exists(r, {differ('k', 'c')})))"
        ),
        "differingFrom": f"variables.containers.filter(c, {known}.exists(r, {differ(key, 'c')}))",
        "differingRefused": (
            "size(variables.differing) == 0 ? [] : "
            f"{known}.filter(r, {differ(key, 'variables.differingFrom[0]')}).map(r, {line})"
        ),
    }

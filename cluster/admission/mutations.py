"""The changes as JSON patches in CEL: change.py in the language of the API server."""

from __future__ import annotations

from cluster.admission import cel, names, variables
from cluster.admission.cel import limits, member, text, texts
from cluster.admission.names import Settings
from cluster.admission.shapes import Shape
from cluster.admission.variables import Variables
from oci_specs.units import BLOCK_MIB
from oci_specs.vocabulary import BLOCKS, CORE, MEMORY, MEMORY_RECLAIMABLE, OFFLINE, QOS, SPARE


def _operation(operation: str, path: str, value: str = "") -> str:
    return f'JSONPatch{{op: "{operation}", path: {path}{f", value: {value}" if value else ""}}}'


def _parents(at: str, pointer: str, *path: str) -> list[str]:
    """Mutations that make the missing members of a path. The API server knows no empty member from none."""
    made: list[str] = []
    there: list[str] = []
    for name in path:
        there.append(f"has({'.'.join((at, *path[: len(there) + 1]))})")
        pointer += f"/{name}"
        is_there = " && ".join(there)
        made.append(f"{is_there} ? [] : [{_operation('add', text(pointer), cel.NO_MAP)}]")
    return made


def workload(settings: Settings, shape: Shape) -> tuple[Variables, list[str]]:
    """The variables and the patches of a policy on workloads."""
    known = {
        **variables.of_pod(shape),
        **variables.of_workload(),
        "brought": (
            f"{texts(names.ANNOTATIONS)}.filter(k, k in variables.annotations && k in variables.oldOwn && "
            "variables.annotations[k] == variables.oldOwn[k])"
        ),
        "put": (
            f"{texts(names.ANNOTATIONS)}.filter(k, k in variables.own && "
            "(!(k in variables.annotations) || k in variables.brought && "
            "variables.annotations[k] != variables.own[k]))"
        ),
        "drop": "variables.brought.filter(k, !(k in variables.own))",
    }
    at = f'"{shape.pointer}/metadata/annotations/" + jsonpatch.escapeKey(k)'
    operations = cel.joined(
        [
            *_parents(shape.cel("object"), shape.pointer, "metadata", "annotations"),
            f"variables.put.map(k, {_operation('add', at, 'string(variables.own[k])')})",
            f"variables.drop.map(k, {_operation('remove', at)})",
        ]
    )
    asks = variables.asks(settings, shape)
    return known, [f"!({asks}) || size(variables.put) + size(variables.drop) == 0 ? [] : {operations}"]


def pod(settings: Settings, shape: Shape) -> tuple[Variables, list[str]]:
    """The variables and the patches of the policy on pods, each upon what the one before made."""
    known = {
        **variables.of_pod(shape),
        **variables.targets(settings),
        **variables.lacking(settings),
        "labelled": f"{texts(names.ANNOTATIONS)}.filter(k, k in variables.labels && !(k in variables.annotations))",
    }
    return known, [_labels(), _spec(settings), _limits(settings), _blocks(settings), _offline()]


def _labels() -> str:
    at = '"/metadata/annotations/" + jsonpatch.escapeKey(k)'
    operations = cel.joined(
        [
            *_parents("object", "", "metadata", "annotations")[1:],
            f"variables.labelled.map(k, {_operation('add', at, 'string(variables.labels[k])')})",
        ]
    )
    return f"size(variables.labelled) == 0 ? [] : {operations}"


def _spec(settings: Settings) -> str:
    runtime = _operation("add", text("/spec/runtimeClassName"), text(names.RUNTIME_CLASS))
    scheduler = _operation("add", text("/spec/schedulerName"), text(settings.scheduler))
    default = texts(("", names.DEFAULT_SCHEDULER))
    return cel.joined(
        [
            f"has(object.spec.runtimeClassName) ? [] : [{runtime}]",
            f'object.spec.?schedulerName.orValue("") in {default} ? [{scheduler}] : []',
        ]
    )


def _each(containers: str, path: str, when: str, value: str) -> str:
    """An operation for each container, c, for which something holds."""
    at = f'"/spec/{containers}/" + string(i) + "/{path}"'
    list_of = {"containers": "variables.containers", "initContainers": "variables.inits"}[containers]
    return f"{list_of}.transformList(i, c, {when}, {_operation('add', at, value)})"


def _limits(settings: Settings) -> str:
    """Of the amounts that annotations claim, into the containers that they are about."""
    is_target = "c.name in variables.targets"
    some = 'size(variables.memory) + size(variables.core) > 0 || variables.cards != ""'
    operations = [
        _each("containers", "resources", f"{is_target} && !has(c.resources)", cel.NO_MAP),
        _each(
            "containers",
            "resources/limits",
            f"{is_target} && !(has(c.resources) && has(c.resources.limits))",
            cel.NO_MAP,
        ),
    ]
    for variable, meaning in (("memory", MEMORY), ("core", CORE)):
        has_none = f"!{texts(settings.of_meaning(meaning))}.exists(r, r in {limits('c')})"
        for key in names.AMOUNTS:
            if key.meaning == meaning:
                name = text(key.name)
                operations.append(
                    _each(
                        "containers",
                        f"resources/limits/{key.name.replace('/', '~1')}",
                        f"{is_target} && {name} in variables.{variable} && {has_none}",
                        f"string(int(variables.annotations[{name}]))",
                    )
                )
    operations.append(
        _each(
            "containers",
            f"resources/limits/{names.GPUS.replace('/', '~1')}",
            f'{is_target} && variables.cards != "" && !{variables.is_limited(settings, "c")}',
            "variables.cards",
        )
    )
    return f"!({some}) ? [] : {cel.joined(operations)}"


def mib(settings: Settings, container: str) -> str:
    """The list of a container's limits in MiB."""
    has = limits(container)
    is_whole = f"quantity(string({has}[r])).isInteger()"
    whole = cel.whole(f"{has}[r]")
    return f"{texts(settings.mib_resources)}.filter(r, r in {has} && {is_whole}).map(r, {whole})"


def blocks(memory: str) -> str:
    return f"({memory} + {BLOCK_MIB - 1}) / {BLOCK_MIB}"


def spare(memory: str) -> str:
    return f"{blocks(memory)} * {BLOCK_MIB} - {memory}"


def _blocks(settings: Settings) -> str:
    memory = f"{mib(settings, 'c')}[0]"
    needs = (
        f"!({text(BLOCKS)} in {limits('c')}) && !({text(SPARE)} in {limits('c')}) && "
        f"{mib(settings, 'c')}.exists(m, m > 0) && {memory} > 0"
    )
    return cel.joined(
        operation
        for containers in ("containers", "initContainers")
        for operation in (
            _each(
                containers,
                f"resources/limits/{BLOCKS.replace('/', '~1')}",
                needs,
                f"string({blocks(memory)})",
            ),
            _each(
                containers,
                f"resources/limits/{SPARE.replace('/', '~1')}",
                f"{needs} && {spare(memory)} > 0",
                f"string({spare(memory)})",
            ),
        )
    )


def _offline() -> str:
    """Of a pod with memory that gives way: mgpud hears it by its annotations."""
    said = "variables.annotations"
    name = text(MEMORY_RECLAIMABLE)
    operations = cel.joined(
        [
            *_parents("object", "", "metadata", "annotations")[1:],
            f"{name} in {said} ? [] : [{_annotation(MEMORY_RECLAIMABLE, 'true')}]",
            f"{texts(names.CLASSES)}.exists(k, k in {said}) ? [] : [{_annotation(QOS, OFFLINE)}]",
        ]
    )
    return f"!({variables.gives_way()}) ? [] : {operations}"


def _annotation(name: str, value: str) -> str:
    at = f"/metadata/annotations/{name.replace('/', '~1')}"
    return _operation("add", text(at), text(value))


def pod_condition(settings: Settings) -> str:
    """Whether the policy on pods has anything to do. Conditions cannot read variables."""
    said = f"{member('object', 'metadata', 'annotations')}"
    labels = f"{member('object', 'metadata', 'labels')}"
    every = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    return (
        f"!({text(names.MIRROR_POD)} in {said}) && ("
        f"{texts(names.ASKING)}.exists(k, k in {said} || k in {labels}) || "
        f"{every}.exists(c, {variables.is_limited(settings, 'c')}))"
    )


def workload_condition() -> str:
    """Whether no controller compares the workload with its own: change.is_owned."""
    owners = "object.metadata.?ownerReferences.orValue([])"
    return f'object.kind == "Job" || !{owners}.exists(o, o.?controller.orValue(false))'

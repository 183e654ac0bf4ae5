"""What a move of a cluster comes to: whose each node is, the steps, and what becomes of the pods that run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.admission import change, refuse, warnings
from cluster.admission.names import DEFAULT_SCHEDULER, Settings
from cluster.admission.shapes import POD, members
from cluster.api.client import Api
from cluster.api.kinds import NODE
from cluster.api.kinds import POD as PODS
from cluster.move import steps

_HAMI = Settings(hami=True)
# Written by HAMi, the API server or a scheduler: of a manifest they are no part.
_NOT_THE_USERS = ("hami.io/vgpu-", "hami.io/bind-")


async def lines(api: Api, label: tuple[str, str]) -> list[str]:
    """ApiProblem."""
    nodes, _ = await api.list(NODE)
    pods, _ = await api.list(PODS)
    return [*_nodes(nodes, pods, label), *_pods(pods)]


def _nodes(
    nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]], label: tuple[str, str]
) -> Iterator[str]:
    key, value = label
    for node in nodes:
        name, labels = node["metadata"]["name"], members(node["metadata"], "labels")
        there = [pod for pod in pods if members(pod, "spec").get("nodeName") == name]
        if labels.get(key) == value:
            yield f"node {name}: HAMi's, {sum(map(steps.has_hamis, there))} pods with GPUs; mgpu-move over {name}:"
            yield from (f"  {step.says}" for step in steps.over(label))
        elif labels.get(steps.LABEL) == steps.TRUE:
            yield f"node {name}: mgpu's, {sum(map(steps.has_ours, there))} pods with GPUs; mgpu-move back {name}:"
            yield from (f"  {step.says}" for step in steps.back(label))


def _pods(pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for pod in filter(steps.has_hamis, pods):
        meta = pod["metadata"]
        who = f"pod {meta['namespace']}/{meta['name']}"
        found = refuse.refusal(POD, admitted(pod), {}, _HAMI)
        if found is not None:
            yield f"{who} would be refused: {found.message}; {found.hint}"
        else:
            yield from (
                f"{who}: {each.removeprefix('mgpu: ')}" for each in warnings.warnings(_HAMI, admitted(pod))
            )


def admitted(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A pod as its controller would make it anew, after mgpu's admission."""
    meta, spec = members(pod, "metadata"), members(pod, "spec")
    said = {
        name: value
        for name, value in members(meta, "annotations").items()
        if not name.startswith(_NOT_THE_USERS)
    }
    anew = {**spec, "schedulerName": DEFAULT_SCHEDULER}
    return change.changed(POD, {"metadata": {**meta, "annotations": said}, "spec": anew}, {}, _HAMI)

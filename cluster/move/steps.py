"""The steps of one node, over and back. Each may be done again: a move that was stopped is begun anew."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.admission import hami, names
from cluster.admission.shapes import annotations_of, every_container_of, limits_of
from cluster.api import quantity
from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.api.kinds import EVICTION, NODE, POD
from oci_specs.refusal import Refusal
from oci_specs.vocabulary import PLACEMENT

Object = dict[str, Any]
# The node selector of HAMi's device plugin, unless its chart was told otherwise.
HAMIS_LABEL = ("gpu", "on")
LABEL, TRUE, UNINSTALL = "mgpu.dev/node", "true", "uninstall"
SERVING = "mgpu.dev/serving"
# HAMi's scheduler places by these, also where its plugin has gone.
_ANNOTATIONS = ("hami.io/node-handshake", "hami.io/node-nvidia-register", "hami.io/node-nvidia-score")
_COMPONENT = ("app.kubernetes.io/component", "uninstall")
PAUSE_S = 1.0


class Step(NamedTuple):
    """do: "" once it is done, else what it waits for."""

    says: str
    do: Callable[[Api, str], Awaitable[str]]


async def run(
    api: Api,
    node: str,
    steps: Sequence[Step],
    say: Callable[[str], None],
    wait_s: float,
    pause_s: float = PAUSE_S,
) -> None:
    """One step after the other. Refusal where one waits for longer than wait_s; ApiProblem."""
    loop = asyncio.get_running_loop()
    for number, step in enumerate(steps, 1):
        say(f"node {node}, step {number} of {len(steps)}: {step.says}")
        until, said = loop.time() + wait_s, ""
        while waits := await step.do(api, node):
            if waits != said:
                say(f"  waits for {waits}")
                said = waits
            if loop.time() >= until:
                raise Refusal(
                    "still-waiting",
                    f"node {node} waits for {waits}, and is cordoned",
                    "see to that and begin again: what is done stays done",
                )
            await asyncio.sleep(pause_s)


def over(label: tuple[str, str] = HAMIS_LABEL, *, force: bool = False) -> tuple[Step, ...]:
    key, value = label
    return (
        Step("cordon", _cordon),
        Step("evict pods that have GPUs by HAMi", _evict(has_hamis, force=force)),
        Step(f"take {key}={value} and HAMi's annotations away, until its plugin has gone", _leave_hami(key)),
        Step(f"label {LABEL}={TRUE}, until mgpu serves", _join_mgpu),
        Step("uncordon", _uncordon),
    )


def back(label: tuple[str, str] = HAMIS_LABEL, *, force: bool = False) -> tuple[Step, ...]:
    key, value = label
    return (
        Step("cordon", _cordon),
        Step("evict pods that have GPUs by mgpu", _evict(has_ours, force=force)),
        Step(f"label {LABEL}={UNINSTALL}, until mgpu is off the node", _leave_mgpu),
        Step(f"label {key}={value}, until HAMi offers GPUs", _join_hami(key, value)),
        Step("uncordon", _uncordon),
    )


def has_hamis(pod: Mapping[str, Any]) -> bool:
    return hami.asks(pod) and not has_ours(pod)


def has_ours(pod: Mapping[str, Any]) -> bool:
    ours = set(names.Settings().resources)
    return PLACEMENT in annotations_of(pod) or any(
        not ours.isdisjoint(limits_of(each)) for each in every_container_of(pod)
    )


async def _cordon(api: Api, node: str) -> str:
    await api.merge(NODE, node, {"spec": {"unschedulable": True}})
    return ""


async def _uncordon(api: Api, node: str) -> str:
    await api.merge(NODE, node, {"spec": {"unschedulable": None}})
    return ""


def _evict(
    which: Callable[[Mapping[str, Any]], bool], *, force: bool
) -> Callable[[Api, str], Awaitable[str]]:
    async def step(api: Api, node: str) -> str:
        pods, _ = await api.list(POD, fields={"spec.nodeName": node})
        left = [pod for pod in pods if which(pod) and not _has_ended(pod)]
        bare = [_name(pod) for pod in left if not pod["metadata"].get("ownerReferences")]
        if bare and not force:
            raise Refusal(
                "bare-pod",
                f"{', '.join(bare)} on node {node} has no controller that would make it anew",
                "end it yourself, or give --force",
            )
        why = {_name(pod): await _ended(api, pod) for pod in left}
        return ", ".join(f"pod {name}{f' ({problem})' if problem else ''}" for name, problem in why.items())

    return step


async def _ended(api: Api, pod: Object) -> str:
    """Why the pod is not evicted; "" where it is going."""
    meta = pod["metadata"]
    if meta.get("deletionTimestamp"):
        return ""
    eviction = {
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
    }
    try:
        await api.create(EVICTION, eviction)
    except ApiProblem as problem:
        if problem.code != 429 and not problem.is_gone and not problem.is_conflict:
            raise
        return str(problem)
    return ""


def _leave_hami(key: str) -> Callable[[Api, str], Awaitable[str]]:
    async def step(api: Api, node: str) -> str:
        gone = dict.fromkeys(_ANNOTATIONS)
        made = await api.merge(NODE, node, {"metadata": {"labels": {key: None}, "annotations": gone}})
        offered = _offered(made)
        # mgpu offers the name as well.
        is_ours = made["metadata"]["labels"].get(LABEL) == TRUE
        return (
            f"HAMi's device plugin to go, which offers {offered} {hami.GPU}"
            if offered and not is_ours
            else ""
        )

    return step


async def _join_mgpu(api: Api, node: str) -> str:
    made = await api.merge(NODE, node, {"metadata": {"labels": {LABEL: TRUE}}})
    return (
        ""
        if made["metadata"]["labels"].get(SERVING) == TRUE
        else f"the label {SERVING}: mgpu-node's log says why"
    )


async def _leave_mgpu(api: Api, node: str) -> str:
    there = (await api.get(NODE, node))["metadata"].get("labels") or {}
    if LABEL not in there:
        return ""
    await api.merge(NODE, node, {"metadata": {"labels": {LABEL: UNINSTALL}}})
    pods, _ = await api.list(POD, labels=dict([_COMPONENT]), fields={"spec.nodeName": node})
    if not any(_is_ready(pod) for pod in pods):
        return "the pod of mgpu-uninstall to be ready: its log says for whom it waits"
    await api.merge(NODE, node, {"metadata": {"labels": {LABEL: None}}})
    return ""


def _join_hami(key: str, value: str) -> Callable[[Api, str], Awaitable[str]]:
    async def step(api: Api, node: str) -> str:
        made = await api.merge(NODE, node, {"metadata": {"labels": {key: value}}})
        return "" if _offered(made) else f"HAMi's device plugin to offer {hami.GPU}"

    return step


def _offered(node: Mapping[str, Any]) -> int:
    return quantity.whole(((node.get("status") or {}).get("allocatable") or {}).get(hami.GPU, 0)) or 0


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _name(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"

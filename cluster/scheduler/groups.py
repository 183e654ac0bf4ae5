"""Which gang a pod is of, by the names that people have for it, and how many pods that takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.api.kinds import Kind
from cluster.scheduler.members import items, members, texts

_Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Pods that only make sense together. said: its name in messages, one for the cluster.

    size: how many pods it takes; None where an object says it, which is of one of these kinds: counted() then
    tells. One is no gang.
    """

    said: str
    size: int | None = None
    kinds: tuple[Kind, ...] = ()
    namespace: str = ""
    name: str = ""
    counted: Callable[[_Object], int] = lambda value: 1


def group_of(meta: _Object, spec: _Object) -> Group | None:
    """By the first of these names that the pod has. A size that is no number counts as one."""
    labels, annotations = texts(meta, "labels"), texts(meta, "annotations")
    namespace = str(meta.get("namespace", ""))

    def of_object(said: str, name: str, counted: Callable[[_Object], int], *kinds: Kind) -> Group:
        return Group(said=said, namespace=namespace, name=name, counted=counted, kinds=kinds)

    if name := texts(spec, "schedulingGroup").get("podGroupName"):
        return of_object(f"PodGroup {namespace}/{name}", name, _min_count, *_KUBERNETES)
    if name := labels.get("scheduling.x-k8s.io/pod-group"):
        return of_object(f"pod group {namespace}/{name}", name, _min_member, _COSCHEDULING)
    if name := annotations.get("scheduling.k8s.io/group-name"):
        return of_object(f"Volcano's group {namespace}/{name}", name, _min_member, _VOLCANO)
    if name := labels.get("pod-group.scheduling.sigs.k8s.io/name"):
        size = _number(labels.get("pod-group.scheduling.sigs.k8s.io/min-available"))
        return Group(said=f"group {namespace}/{name}", size=size)
    if name := labels.get("leaderworkerset.sigs.k8s.io/name"):
        index = labels.get("leaderworkerset.sigs.k8s.io/group-index", "")
        return of_object(f"LeaderWorkerSet {namespace}/{name}, group {index}", name, _of_lws, _LWS)
    if name := labels.get("jobset.sigs.k8s.io/jobset-name"):
        attempt = labels.get("jobset.sigs.k8s.io/restart-attempt", "0")
        return of_object(f"JobSet {namespace}/{name}, attempt {attempt}", name, _of_jobset, _JOBSET)
    if name := labels.get("kueue.x-k8s.io/pod-group-name"):
        size = _number(annotations.get("kueue.x-k8s.io/pod-group-total-count"))
        return Group(said=f"Kueue's group {namespace}/{name}", size=size)
    return None


def _pod_groups(group: str, version: str) -> Kind:
    return Kind(group, version, "PodGroup", "podgroups", namespaced=True)


# From 1.37, and 1.36; 1.35 has the field workloadRef instead, which is not read.
_KUBERNETES = (_pod_groups("scheduling.k8s.io", "v1beta1"), _pod_groups("scheduling.k8s.io", "v1alpha2"))
_COSCHEDULING = _pod_groups("scheduling.x-k8s.io", "v1alpha1")
_VOLCANO = _pod_groups("scheduling.volcano.sh", "v1beta1")
_LWS = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", namespaced=True)
_JOBSET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", namespaced=True)


def _number(value: object, default: int = 1) -> int:
    try:
        return int(str(value))
    except ValueError:
        return default


def _min_count(value: _Object) -> int:
    policy = members(members(value, "spec"), "schedulingPolicy")
    return _number(members(policy, "gang").get("minCount"))


def _min_member(value: _Object) -> int:
    return _number(members(value, "spec").get("minMember"))


def _of_lws(value: _Object) -> int:
    """Where the workers are only made once the leader is ready, it starts alone."""
    spec = members(value, "spec")
    if spec.get("startupPolicy") == "LeaderReady":
        return 1
    return _number(members(spec, "leaderWorkerTemplate").get("size"))


def _of_jobset(value: _Object) -> int:
    """All pods of all its jobs, unless one job starts after another."""
    spec = members(value, "spec")
    jobs = items(spec, "replicatedJobs")
    order = members(spec, "startupPolicy").get("startupPolicyOrder")
    if order == "InOrder" or any(items(job, "dependsOn") for job in jobs):
        return 1
    found = 0
    for job in jobs:
        template = members(members(job, "template"), "spec")
        at_once = _number(template.get("parallelism"))
        found += _number(job.get("replicas")) * min(at_once, _number(template.get("completions"), at_once))
    return found

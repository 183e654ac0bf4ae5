"""Every key that users may write, as data.

The form names the reader in `oci_specs.forms` that turns a value into its meaning; `implies` is the class
that a key carries besides its number. This module imports nothing heavy: `names_gpu` decides, on every
container start, whether mgpu has anything to do with the container.
"""

from __future__ import annotations

from oci_specs import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ANNOTATION = "annotation"
ENV = "env"

CLASS = "class"
POLICY = "policy"
MEMORY = "memory"
CORE = "core"
CARDS = "cards"
PLACED = "placed"
# What a key of blocks gives too much.
LESS = "less"
# Whether the container's memory gives way to online containers.
RECLAIMABLE = "reclaimable"

ONLINE = "online"
OFFLINE = "offline"

NATIVE_BURST_SHARE = "native-burst-share"
FIXED_SHARE = "fixed-share"
GUARANTEED_BURST_SHARE = "guaranteed-burst-share"
# The order is that of the numbers that qGPU gives them, and the engine's scheduler.
POLICIES = (NATIVE_BURST_SHARE, FIXED_SHARE, GUARANTEED_BURST_SHARE)
# A quota that always holds surprises least.
DEFAULT_POLICY = FIXED_SHARE
# What native_sched/core says of a policy, which a test compares: whether quotas mean something,
# and whether nobody gets more than its quota, so that a container without one lives on what the others leave.
HEEDS_QUOTAS = frozenset((FIXED_SHARE, GUARANTEED_BURST_SHARE))
QUOTAS_BIND = frozenset((FIXED_SHARE,))
# qGPU's names.
QGPU_POLICIES = {
    "best-effort": NATIVE_BURST_SHARE,
    "be": NATIVE_BURST_SHARE,
    "fixed-share": FIXED_SHARE,
    "fs": FIXED_SHARE,
    "burst-share": GUARANTEED_BURST_SHARE,
    "bs": GUARANTEED_BURST_SHARE,
}

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
# Values that name no card. The NVIDIA runtime treats an empty value and "void" as unset; CDI specs write
# "void" so that it keeps its hands off a container that has its devices already.
VISIBLE_DEVICES_UNSET = ("", "void")
VISIBLE_DEVICES_NONE = "none"

OWN_PREFIX = "mgpu.dev/"
# What a cluster's scheduler chose: a container's cards, by its name. Nobody else may write it there.
PLACEMENT = "mgpu.dev/placement"
# The memory that kubelet has given a container: so many blocks, less so many MiB (oci_specs/units.py).
BLOCKS = "mgpu.dev/memory-64mib"
SPARE = "mgpu.dev/memory-spare-mib"
MEMORY_RECLAIMABLE = "mgpu.dev/memory-reclaimable"
MEMORY_MIB = "mgpu.dev/memory-mib"
# Of the memory of each of the container's cards.
MEMORY_PERCENT = "mgpu.dev/memory-percent"
# An amount of memory that gives way: offline by definition.
RECLAIMABLE_MEMORY = "mgpu.dev/reclaimable-memory-mib"
QOS = "mgpu.dev/qos"
OWN_ENV_PREFIX = "MGPU_"
# Variables that name a prepared claim (oci_specs/claim.py).
CLAIM_ENV_PREFIX = "MGPU_CLAIM_"
# What mgpu's own programs read. An image or an operator's shell that hands them on says nothing about a GPU.
_PROGRAMS_ENV = frozenset({"MGPU_PREFIX", "MGPU_ROOT"})


class Key:
    """One key. implies: None, or "online"/"offline" for the keys of one class alone."""

    __slots__ = ("form", "implies", "meaning", "name", "source")

    def __init__(self, meaning: str, name: str, source: str, form: str, implies: str | None = None) -> None:
        self.meaning = meaning
        self.name = name
        self.source = source
        self.form = form
        self.implies = implies

    def __repr__(self) -> str:
        return f"Key({self.meaning}, {self.name})"


KEYS = (
    Key(CLASS, "katalyst.kubewharf.io/qos_level", ANNOTATION, "katalyst-class"),
    Key(CLASS, "tke.cloud.tencent.com/app-class", ANNOTATION, "class"),
    Key(CLASS, QOS, ANNOTATION, "class"),
    Key(CLASS, "MGPU_QOS", ENV, "class"),
    Key(POLICY, "vke.volcengine.com/mgpu-compute-policy", ANNOTATION, "mgpu-policy"),
    Key(POLICY, "tke.cloud.tencent.com/qgpu-schedule-policy", ANNOTATION, "qgpu-policy"),
    Key(POLICY, "mgpu.dev/policy", ANNOTATION, "policy"),
    Key(POLICY, "MGPU_POLICY", ENV, "policy"),
    Key(MEMORY, "vke.volcengine.com/mgpu-memory", ANNOTATION, "mib"),
    Key(MEMORY, "tke.cloud.tencent.com/qgpu-memory", ANNOTATION, "gib"),
    Key(MEMORY, "tencent.com/vcuda-memory", ANNOTATION, "vcuda-blocks"),
    Key(MEMORY, "aliyun.com/gpu-mem", ANNOTATION, "aliyun-units"),
    Key(MEMORY, MEMORY_MIB, ANNOTATION, "mib"),
    Key(MEMORY, MEMORY_PERCENT, ANNOTATION, "memory-percent"),
    Key(MEMORY, RECLAIMABLE_MEMORY, ANNOTATION, "mib", OFFLINE),
    Key(MEMORY, BLOCKS, ANNOTATION, "blocks"),
    Key(LESS, SPARE, ANNOTATION, "spare-mib"),
    Key(MEMORY, "MGPU_MEMORY_MIB", ENV, "mib"),
    Key(RECLAIMABLE, MEMORY_RECLAIMABLE, ANNOTATION, "true-or-false"),
    Key(RECLAIMABLE, "MGPU_MEMORY_RECLAIMABLE", ENV, "true-or-false"),
    Key(CORE, "vke.volcengine.com/mgpu-core", ANNOTATION, "mgpu-core", ONLINE),
    Key(CORE, "vke.volcengine.com/reclaimed-mgpu-core", ANNOTATION, "mgpu-core", OFFLINE),
    Key(CORE, "tke.cloud.tencent.com/qgpu-core", ANNOTATION, "qgpu-core", ONLINE),
    Key(CORE, "tke.cloud.tencent.com/qgpu-core-greedy", ANNOTATION, "qgpu-core", OFFLINE),
    Key(CORE, "tencent.com/vcuda-core", ANNOTATION, "vcuda-core"),
    Key(CORE, "mgpu.dev/core", ANNOTATION, "core"),
    Key(CORE, "MGPU_CORE", ENV, "core"),
    Key(CARDS, "vke.volcengine.com/container-multiple-gpu", ANNOTATION, "count-list"),
    Key(CARDS, "aliyun.com/gpu-count", ANNOTATION, "count"),
    Key(CARDS, "mgpu.dev/gpus", ANNOTATION, "count-or-uuids"),
    Key(CARDS, "MGPU_GPUS", ENV, "count-or-uuids"),
    Key(PLACED, PLACEMENT, ANNOTATION, "placement"),
)

_ANNOTATIONS = frozenset(key.name for key in KEYS if key.source == ANNOTATION)
_ENV = frozenset(key.name for key in KEYS if key.source == ENV)
# A class or a policy alone asks for nothing: katalyst writes qos_level on every pod of a cluster.
_ASKING_ANNOTATIONS = frozenset(
    key.name for key in KEYS if key.source == ANNOTATION and key.meaning in (MEMORY, CORE, CARDS)
)
_ASKING_ENV = frozenset(
    key.name for key in KEYS if key.source == ENV and key.meaning in (MEMORY, CORE, CARDS)
)


def unknown_own(annotations: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """The names under our prefixes that are no keys of ours: a misspelt limit must not be no limit."""
    return [
        *sorted(name for name in annotations if name.startswith(OWN_PREFIX) and name not in _ANNOTATIONS),
        *sorted(
            name
            for name in env
            if _is_own_variable(name) and name not in _ENV and not name.startswith(CLAIM_ENV_PREFIX)
        ),
    ]


def claims_named(env: Mapping[str, str]) -> list[str]:
    """The claims that the container's variables name, rightly or wrongly."""
    return [
        value for name, value in env.items() if name.startswith(CLAIM_ENV_PREFIX) and _is_own_variable(name)
    ]


def asking_variables(env: Mapping[str, str]) -> list[str]:
    """Our variables that ask for a GPU, and misspelt ones of ours. NVIDIA's is in many images."""
    return sorted({name for name in env if name in _ASKING_ENV} | set(unknown_own({}, env)))


def _is_own_variable(name: str) -> bool:
    return name.startswith(OWN_ENV_PREFIX) and name not in _PROGRAMS_ENV and not _is_of_a_service(name)


def _is_of_a_service(name: str) -> bool:
    """Whether this is what Kubernetes puts into every pod beside a Service called mgpu or mgpu-something."""
    return "_SERVICE_HOST" in name or "_SERVICE_PORT" in name or name.endswith("_PORT") or "_PORT_" in name


def names_gpu(annotations: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Whether the container names a GPU in any way, rightly or wrongly, so that mgpud must be asked.

    False is final: such a container is run as it is. NVIDIA_VISIBLE_DEVICES counts unless it is empty, "void"
    or "none", even though "all" by itself asks for nothing on most nodes: only mgpud knows the node's config.
    """
    if not _ASKING_ANNOTATIONS.isdisjoint(annotations) or not _ASKING_ENV.isdisjoint(env):
        return True
    if env.get(VISIBLE_DEVICES, "") not in (*VISIBLE_DEVICES_UNSET, VISIBLE_DEVICES_NONE):
        return True
    return bool(claims_named(env) or unknown_own(annotations, env))


def admission_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations of an admit message: ours, misspelt ones of ours, and those of identity."""
    return {
        name: value
        for name, value in annotations.items()
        if name in _ANNOTATIONS or name in identity.ANNOTATIONS or name.startswith(OWN_PREFIX)
    }


def admission_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment that an admit message carries: ours, misspelt ones of ours, and NVIDIA's."""
    return {
        name: value for name, value in env.items() if _is_own_variable(name) or name.startswith("NVIDIA_")
    }

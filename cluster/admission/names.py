"""The names that admission decides by, all of them the vocabulary's."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cluster.resources.table import GIB_KEY, RESOURCES
from oci_specs import forms, units, vocabulary
from oci_specs.vocabulary import CARDS, CORE, MEMORY, RECLAIMABLE_MEMORY, Key

RUNTIME_CLASS = "mgpu"
SCHEDULER = "mgpu-scheduler"
# The API server's default of schedulerName.
DEFAULT_SCHEDULER = "default-scheduler"
# Where mgpu's own pods are, and the cluster's: a webhook that judged them could keep itself from starting.
EXCLUDED_NAMESPACES = ("kube-system", "mgpu-system")
# kubectl's own annotation: the container that commands are for unless they name one.
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
# The API server's picture of a static pod: what is changed there changes nothing on the node.
MIRROR_POD = "kubernetes.io/config.mirror"

# Annotations that mgpu alone writes.
RESERVED = (vocabulary.PLACEMENT, vocabulary.BLOCKS, vocabulary.SPARE)

KEYS: tuple[Key, ...] = tuple(
    key for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION and key.name not in RESERVED
)
# Their forms in the order in which values are judged, each with its keys.
FORMS: dict[str, tuple[str, ...]] = {
    form: tuple(key.name for key in KEYS if key.form == form)
    for form in dict.fromkeys(key.form for key in KEYS)
}
ANNOTATIONS = tuple(key.name for key in KEYS)
ASKING = tuple(key.name for key in KEYS if key.meaning in (MEMORY, CORE, CARDS))

GPUS = "mgpu.dev/gpus"
CORE_OF_OURS = "mgpu.dev/core"
# One number for each container in order, which no container can find its own of: only equal ones mean
# something.
LIST = "vke.volcengine.com/container-multiple-gpu"
COUNTS = ("aliyun.com/gpu-count", LIST, GPUS)
AMOUNTS: tuple[Key, ...] = tuple(key for key in KEYS if key.meaning in (MEMORY, CORE))
CLASSES = tuple(key.name for key in KEYS if key.meaning == vocabulary.CLASS)
OFFLINE_VALUES = tuple(
    dict.fromkeys(
        value
        for key in KEYS
        if key.meaning == vocabulary.CLASS
        for value in forms.FORMS[key.form].choices
        if forms.FORMS[key.form].read(value) == vocabulary.OFFLINE
    )
)

# Of a pod they ask for nothing, unless a node says so: no quota counts them, and no scheduler.
VARIABLES = tuple(key.name for key in vocabulary.KEYS if key.source == vocabulary.ENV)
CLAIM_VARIABLES = vocabulary.CLAIM_ENV_PREFIX

MIB, GIB_UNITS, PERCENT, PERCENT_OF_MEMORY, RECLAIMABLE_MIB = range(5)
# HAMi's resources; what they come to is said under our names too (hami.py).
HAMI = tuple(each.name for each in RESOURCES if each.opt_in)
_MEASURES = {
    "mib": (MIB, 1),
    "gib": (MIB, units.MIB_PER_GIB),
    "vcuda-blocks": (MIB, units.VCUDA_BLOCK_MIB),
    "aliyun-units": (GIB_UNITS, 1),
    "memory-percent": (PERCENT_OF_MEMORY, 1),
}


class Unit(NamedTuple):
    """meaning: memory or core. measure: what it is counted in. number: how much of that one of it is."""

    meaning: str
    measure: int
    number: int


@dataclass(frozen=True)
class Settings:
    """The operator's choices for the whole cluster.

    scheduler: who places pods of ours by card; "default-scheduler" where that one has mgpu's extender. hami:
    whether HAMi's resources are ours. aliyun_mib: whether aliyun.com/gpu-mem is in MiB.
    """

    scheduler: str = SCHEDULER
    hami: bool = False
    aliyun_mib: bool = False

    @property
    def resources(self) -> tuple[str, ...]:
        """Resources that nodes offer to users, most of them under the names of annotations."""
        return tuple(
            each.name for each in RESOURCES if each.name not in RESERVED and (self.hami or not each.opt_in)
        )

    @property
    def mib_resources(self) -> tuple[str, ...]:
        """Resources that kubelet hands out as blocks."""
        mib = {each.name for each in RESOURCES if each.by == "status" and not each.opt_in} | (
            {GIB_KEY} if self.aliyun_mib else set()
        )
        return tuple(name for name in self.resources if name in mib)

    @property
    def units(self) -> dict[str, Unit]:
        """Of each amount: only those of one meaning and one measure can agree."""
        own = {key.name: Unit(key.meaning, *_MEASURES.get(key.form, (PERCENT, 1))) for key in AMOUNTS}
        # As much memory that gives way is not the same.
        own[RECLAIMABLE_MEMORY] = Unit(MEMORY, RECLAIMABLE_MIB, 1)
        return own

    def of_meaning(self, meaning: str) -> tuple[str, ...]:
        """The resources that say it."""
        return tuple(name for name, unit in self.units.items() if unit.meaning == meaning)


# A name that begins so and is no key is a misspelt one: a misspelt limit must not be no limit. A vendor's
# other names are the vendor's own.
FAMILIES = (
    "aliyun.com/gpu-",
    "mgpu.dev/",
    "tencent.com/vcuda-",
    "tke.cloud.tencent.com/qgpu-",
    "vke.volcengine.com/container-multiple-",
    "vke.volcengine.com/mgpu-",
    "vke.volcengine.com/reclaimed-mgpu-",
)
# gpu-manager's own, in these families (its pkg/types): a soft limit above vcuda-core, and what it assigned.
OTHERS = ("tencent.com/vcuda-core-limit", "tencent.com/vcuda-device")
KNOWN = (*ANNOTATIONS, *RESERVED, *OTHERS)


def unknown(names: Iterable[str]) -> list[str]:
    """The names of a family that are no key, sorted."""
    return sorted(name for name in names if name.startswith(FAMILIES) and name not in KNOWN)


def allowed(name: str) -> str:
    """The keys of the vendor whose family an unknown name is of."""
    prefix = name.partition("/")[0] + "/"
    return ", ".join(sorted(key for key in ANNOTATIONS if key.startswith(prefix)))

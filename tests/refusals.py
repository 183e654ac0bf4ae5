"""Every refusal of what users write, as data: the unit tests and the tests through real engines read the same
table.

REFUSALS holds on any node with the default config. NODE_REFUSALS holds on a node with two empty cards of
16160 MiB (`v100-16:2`) and the default config.
"""

from typing import NamedTuple

from oci_specs import vocabulary
from oci_specs.refusal import quoted


class RefusalCase(NamedTuple):
    """line is the whole line that the user sees. can_be_env: an engine without annotations (Docker) can ask
    it.
    """

    id: str
    annotations: dict[str, str]
    env: dict[str, str]
    line: str
    can_be_env: bool


def _annotated(id: str, line: str, **values: str) -> RefusalCase:
    return RefusalCase(
        id, {_KEYS[name]: value for name, value in values.items()}, {}, f"mgpu: {line}", False
    )


def _env(id: str, line: str, **values: str) -> RefusalCase:
    return RefusalCase(id, {}, values, f"mgpu: {line}", True)


def _both(id: str, annotations: dict[str, str], env: dict[str, str], line: str) -> RefusalCase:
    return RefusalCase(
        id, {_KEYS[name]: value for name, value in annotations.items()}, env, f"mgpu: {line}", False
    )


# Short names, so that a case fits on a line or two.
_KEYS = {
    "katalyst": "katalyst.kubewharf.io/qos_level",
    "app_class": "tke.cloud.tencent.com/app-class",
    "qos": "mgpu.dev/qos",
    "vke_policy": "vke.volcengine.com/mgpu-compute-policy",
    "tke_policy": "tke.cloud.tencent.com/qgpu-schedule-policy",
    "policy": "mgpu.dev/policy",
    "vke_memory": "vke.volcengine.com/mgpu-memory",
    "tke_memory": "tke.cloud.tencent.com/qgpu-memory",
    "vcuda_memory": "tencent.com/vcuda-memory",
    "gpu_mem": "aliyun.com/gpu-mem",
    "memory": "mgpu.dev/memory-mib",
    "percent": "mgpu.dev/memory-percent",
    "blocks": "mgpu.dev/memory-64mib",
    "spare": "mgpu.dev/memory-spare-mib",
    "vke_core": "vke.volcengine.com/mgpu-core",
    "vke_reclaimed": "vke.volcengine.com/reclaimed-mgpu-core",
    "tke_core": "tke.cloud.tencent.com/qgpu-core",
    "tke_greedy": "tke.cloud.tencent.com/qgpu-core-greedy",
    "vcuda_core": "tencent.com/vcuda-core",
    "core": "mgpu.dev/core",
    "multiple": "vke.volcengine.com/container-multiple-gpu",
    "gpu_count": "aliyun.com/gpu-count",
    "gpus": "mgpu.dev/gpus",
    "placement": "mgpu.dev/placement",
    "misspelt": "mgpu.dev/memory-mb",
}

_MIB = "allowed: a whole number of MiB, 256 or more"
_GB = "allowed: a whole number of GB (1024 MiB), 1 or more"
_BLOCKS = "allowed: a whole number of 256 MiB blocks, 1 or more"
_PERCENT = "allowed: a whole percentage of each GPU's memory, 1 to 100"
_UNITS = "allowed: a whole number of GiB units, 1 or more"
_MGPU_CORE = "allowed: 1 to 100, or a multiple of 100"
_QGPU_CORE = "allowed: 5 to 100 in steps of 5, or a multiple of 100"
_VCUDA_CORE = "allowed: 1 to 99, or a multiple of 100"
_CORE = "allowed: a whole percentage, 1 or more and at most 100 a GPU"
_KATALYST = "allowed: shared_cores, dedicated_cores or reclaimed_cores"
_CLASS = "allowed: online or offline"
_POLICIES = ", ".join(sorted(vocabulary.POLICIES))
_MGPU_POLICY = "allowed: " + " or ".join(_POLICIES.rsplit(", ", 1))
_QGPU_POLICY = "allowed: best-effort, be, fixed-share, fs, burst-share or bs"
_NUMBERS = " or ".join(", ".join(map(str, range(len(vocabulary.POLICIES)))).rsplit(", ", 1))
_POLICY = f"allowed: {_POLICIES}, best-effort, be, fs, burst-share, bs, {_NUMBERS}"
_COUNT = "allowed: a whole number, 1 or more"
_GPUS = f"{_COUNT}, or different GPU-… or MIG-… UUIDs separated by commas"
_LIST = "allowed: one whole number for each container of the pod, such as 2,1,0"
_VISIBLE = "allowed: all, none, void, GPU indices, GPU-… or MIG-… UUIDs, separated by commas"
_PLACEMENT = 'allowed: JSON of each container\'s GPUs, such as {"main": ["GPU-…"]}, as a scheduler writes it'
_SAME = "keep one of them, or let both say the same"
_EVENLY = "allowed: a total of which each GPU gets an equal whole part"
_EACH_1024 = "allowed: 1024 MiB a GPU or more where a container has several"
_OWN = (
    "allowed: mgpu.dev/core, mgpu.dev/gpus, mgpu.dev/memory-64mib, mgpu.dev/memory-mib, "
    "mgpu.dev/memory-percent, mgpu.dev/memory-reclaimable, mgpu.dev/memory-spare-mib, mgpu.dev/placement, "
    "mgpu.dev/policy, mgpu.dev/qos, mgpu.dev/reclaimable-memory-mib"
)
_OWN_ENV = "allowed: MGPU_CORE, MGPU_GPUS, MGPU_MEMORY_MIB, MGPU_MEMORY_RECLAIMABLE, MGPU_POLICY, MGPU_QOS"
_POSITION = (
    "and the container engine does not tell which container of the pod this is; "
    "write mgpu.dev/gpus for each container instead, or the same number for all"
)

REFUSALS = [
    # Values.
    _annotated("vke-memory-text", f'vke.volcengine.com/mgpu-memory is "4Gi"; {_MIB}', vke_memory="4Gi"),
    _annotated("vke-memory-small", f'vke.volcengine.com/mgpu-memory is "255"; {_MIB}', vke_memory="255"),
    _annotated("tke-memory-zero", f'tke.cloud.tencent.com/qgpu-memory is "0"; {_GB}', tke_memory="0"),
    _annotated(
        "tke-memory-fraction", f'tke.cloud.tencent.com/qgpu-memory is "1.5"; {_GB}', tke_memory="1.5"
    ),
    _annotated("vcuda-memory-zero", f'tencent.com/vcuda-memory is "0"; {_BLOCKS}', vcuda_memory="0"),
    _annotated(
        "blocks-too-few",
        'mgpu.dev/memory-64mib is "3"; allowed: 64 MiB each, and 256 MiB or more in all',
        blocks="3",
    ),
    _annotated(
        "blocks-too-few-without-spare",
        'mgpu.dev/memory-64mib is "4, less 1 MiB"; allowed: 64 MiB each, and 256 MiB or more in all',
        blocks="4",
        spare="1",
    ),
    _annotated("memory-percent-zero", f'mgpu.dev/memory-percent is "0"; {_PERCENT}', percent="0"),
    _annotated("gpu-mem-zero", f'aliyun.com/gpu-mem is "0"; {_UNITS}', gpu_mem="0"),
    _annotated("gpu-mem-negative", f'aliyun.com/gpu-mem is "-8"; {_UNITS}', gpu_mem="-8"),
    _annotated("memory-empty", f'mgpu.dev/memory-mib is ""; {_MIB}', memory=""),
    _annotated("memory-foreign-digits", f'mgpu.dev/memory-mib is "٤٠٩٦"; {_MIB}', memory="٤٠٩٦"),
    _annotated("memory-underscore", f'mgpu.dev/memory-mib is "4_096"; {_MIB}', memory="4_096"),
    _annotated(
        "memory-huge", 'mgpu.dev/memory-mib is "9999999999"; allowed: 999999999 at most', memory="9999999999"
    ),
    _annotated(
        "tke-memory-huge",
        'tke.cloud.tencent.com/qgpu-memory is "976563"; allowed: 976562 at most',
        tke_memory="976563",
    ),
    _annotated(
        "vcuda-memory-huge",
        'tencent.com/vcuda-memory is "3906250"; allowed: 3906249 at most',
        vcuda_memory="3906250",
    ),
    _annotated("gpu-mem-huge", 'aliyun.com/gpu-mem is "976563"; allowed: 976562 at most', gpu_mem="976563"),
    _env("env-gpus-huge", 'MGPU_GPUS is "1000000000"; allowed: 999999999 at most', MGPU_GPUS="1000000000"),
    _annotated("memory-two-lines", f'mgpu.dev/memory-mib is "4096\\nroot"; {_MIB}', memory="4096\nroot"),
    _annotated("memory-long", f'mgpu.dev/memory-mib is "{"x" * 120}…"; {_MIB}', memory="x" * 500),
    _annotated("memory-quote", f'mgpu.dev/memory-mib is "\\"8\\""; {_MIB}', memory='"8"'),
    _env("env-memory-text", f'MGPU_MEMORY_MIB is "4096MiB"; {_MIB}', MGPU_MEMORY_MIB="4096MiB"),
    _env("env-memory-small", f'MGPU_MEMORY_MIB is "255"; {_MIB}', MGPU_MEMORY_MIB="255"),
    _env("env-memory-empty", f'MGPU_MEMORY_MIB is ""; {_MIB}', MGPU_MEMORY_MIB=""),
    _annotated("vke-core-zero", f'vke.volcengine.com/mgpu-core is "0"; {_MGPU_CORE}', vke_core="0"),
    _annotated("vke-core-150", f'vke.volcengine.com/mgpu-core is "150"; {_MGPU_CORE}', vke_core="150"),
    _annotated(
        "vke-reclaimed-101",
        f'vke.volcengine.com/reclaimed-mgpu-core is "101"; {_MGPU_CORE}',
        vke_reclaimed="101",
    ),
    _annotated("tke-core-step", f'tke.cloud.tencent.com/qgpu-core is "7"; {_QGPU_CORE}', tke_core="7"),
    _annotated("tke-core-105", f'tke.cloud.tencent.com/qgpu-core is "105"; {_QGPU_CORE}', tke_core="105"),
    _annotated(
        "tke-greedy-step", f'tke.cloud.tencent.com/qgpu-core-greedy is "3"; {_QGPU_CORE}', tke_greedy="3"
    ),
    _annotated("vcuda-core-150", f'tencent.com/vcuda-core is "150"; {_VCUDA_CORE}', vcuda_core="150"),
    _annotated("core-percent-sign", f'mgpu.dev/core is "30%"; {_CORE}', core="30%"),
    _env("env-core-zero", f'MGPU_CORE is "0"; {_CORE}', MGPU_CORE="0"),
    _annotated(
        "katalyst-system",
        f'katalyst.kubewharf.io/qos_level is "system_cores"; {_KATALYST}',
        katalyst="system_cores",
        memory="4096",
    ),
    _annotated(
        "katalyst-unknown",
        f'katalyst.kubewharf.io/qos_level is "offline"; {_KATALYST}',
        katalyst="offline",
        memory="4096",
    ),
    _annotated(
        "app-class-unknown",
        f'tke.cloud.tencent.com/app-class is "Online"; {_CLASS}',
        app_class="Online",
        memory="4096",
    ),
    _annotated("qos-unknown", f'mgpu.dev/qos is "best-effort"; {_CLASS}', qos="best-effort", memory="4096"),
    _env("env-qos-unknown", f'MGPU_QOS is "low"; {_CLASS}', MGPU_QOS="low", MGPU_MEMORY_MIB="4096"),
    _annotated(
        "vke-policy-unknown",
        f'vke.volcengine.com/mgpu-compute-policy is "fs"; {_MGPU_POLICY}',
        vke_policy="fs",
        memory="4096",
    ),
    _annotated(
        "tke-policy-unknown",
        f'tke.cloud.tencent.com/qgpu-schedule-policy is "1"; {_QGPU_POLICY}',
        tke_policy="1",
        memory="4096",
    ),
    _annotated("policy-unknown", f'mgpu.dev/policy is "3"; {_POLICY}', policy="3", memory="4096"),
    _env(
        "env-policy-unknown", f'MGPU_POLICY is "fair"; {_POLICY}', MGPU_POLICY="fair", MGPU_MEMORY_MIB="4096"
    ),
    _annotated(
        "multiple-text", f'vke.volcengine.com/container-multiple-gpu is "2,one"; {_LIST}', multiple="2,one"
    ),
    _annotated(
        "multiple-position",
        f'vke.volcengine.com/container-multiple-gpu is "2,1,3", {_POSITION}',
        multiple="2,1,3",
        vke_memory="4096",
    ),
    _annotated("gpu-count-zero", f'aliyun.com/gpu-count is "0"; {_COUNT}', gpu_count="0"),
    *(
        _annotated(
            f"placement-{name}",
            f"mgpu.dev/placement is {quoted(text)}; {_PLACEMENT}",
            placement=text,
            gpus="1",
        )
        for name, text in (
            ("no-json", "GPU-1"),
            ("no-object", '["GPU-1"]'),
            ("no-list", '{"main": "GPU-1"}'),
            ("no-cards", '{"main": []}'),
            ("index", '{"main": [0]}'),
            ("twice", '{"main": ["GPU-1", "GPU-1"]}'),
            ("deep", "[" * 2_000),
        )
    ),
    _annotated("gpus-text", f'mgpu.dev/gpus is "two"; {_GPUS}', gpus="two"),
    _annotated("gpus-zero", f'mgpu.dev/gpus is "0"; {_GPUS}', gpus="0"),
    _annotated("gpus-twice", f'mgpu.dev/gpus is "GPU-1,GPU-1"; {_GPUS}', gpus="GPU-1,GPU-1"),
    _env("env-gpus-index-list", f'MGPU_GPUS is "0,1"; {_GPUS}', MGPU_GPUS="0,1"),
    _env(
        "visible-unknown", f'NVIDIA_VISIBLE_DEVICES is "first"; {_VISIBLE}', NVIDIA_VISIBLE_DEVICES="first"
    ),
    _env(
        "visible-all-and", f'NVIDIA_VISIBLE_DEVICES is "all,0"; {_VISIBLE}', NVIDIA_VISIBLE_DEVICES="all,0"
    ),
    _annotated(
        "unknown-key",
        f'"mgpu.dev/memory-mb" is not a key of mgpu; did you mean mgpu.dev/memory-mib? {_OWN}',
        misspelt="4096",
    ),
    _env(
        "env-unknown-alone",
        f'"MGPU_MEMORY" is not a key of mgpu; did you mean MGPU_MEMORY_MIB? {_OWN_ENV}',
        MGPU_MEMORY="4096",
    ),
    _env(
        "env-unknown-gpu",
        f'"MGPU_GPU" is not a key of mgpu; did you mean MGPU_GPUS? {_OWN_ENV}',
        MGPU_GPU="2",
    ),
    _env(
        "env-unknown-beside-visible",
        f'"MGPU_MEMORY" is not a key of mgpu; did you mean MGPU_MEMORY_MIB? {_OWN_ENV}',
        NVIDIA_VISIBLE_DEVICES="0",
        MGPU_MEMORY="4096",
    ),
    _env(
        "env-unknown-first-by-name",
        f'"MGPU_CLASS" is not a key of mgpu; {_OWN_ENV}',
        MGPU_MEMORY="4096",
        MGPU_GPUS="1",
        MGPU_CLASS="offline",
    ),
    _both(
        "env-unknown-beside-annotation",
        {"memory": "4096"},
        {"MGPU_MEMORY": "8192"},
        f'"MGPU_MEMORY" is not a key of mgpu; did you mean MGPU_MEMORY_MIB? {_OWN_ENV}',
    ),
    # Keys at one distance that disagree.
    _annotated(
        "memory-disagree",
        f'vke.volcengine.com/mgpu-memory "4096" and mgpu.dev/memory-mib "8192" disagree; {_SAME}',
        vke_memory="4096",
        memory="8192",
    ),
    _annotated(
        "memory-units-disagree",
        f'tke.cloud.tencent.com/qgpu-memory "8" and aliyun.com/gpu-mem "8" disagree; {_SAME}',
        tke_memory="8",
        gpu_mem="8",
    ),
    _annotated(
        "core-disagree",
        f'tencent.com/vcuda-core "40" and mgpu.dev/core "50" disagree; {_SAME}',
        vcuda_core="40",
        core="50",
    ),
    _annotated(
        "policy-disagree",
        'vke.volcengine.com/mgpu-compute-policy "fixed-share" and '
        f'tke.cloud.tencent.com/qgpu-schedule-policy "bs" disagree; {_SAME}',
        vke_policy="fixed-share",
        tke_policy="bs",
        memory="4096",
    ),
    _annotated(
        "class-disagree",
        f'katalyst.kubewharf.io/qos_level "shared_cores" and mgpu.dev/qos "offline" disagree; {_SAME}',
        katalyst="shared_cores",
        qos="offline",
        memory="4096",
    ),
    _annotated(
        "count-disagree",
        f'aliyun.com/gpu-count "2" and mgpu.dev/gpus "1" disagree; {_SAME}',
        gpu_count="2",
        gpus="1",
    ),
    _annotated(
        "count-uuids-disagree",
        f'aliyun.com/gpu-count "2" and mgpu.dev/gpus "GPU-1" disagree; {_SAME}',
        gpu_count="2",
        gpus="GPU-1",
    ),
    _annotated(
        "vke-both-classes",
        'vke.volcengine.com/mgpu-core "50" (online) and vke.volcengine.com/reclaimed-mgpu-core "50" (offline) '
        "disagree; keep one of them",
        vke_core="50",
        vke_reclaimed="50",
    ),
    _annotated(
        "reclaimed-online",
        'vke.volcengine.com/reclaimed-mgpu-core "30" (offline) and katalyst.kubewharf.io/qos_level "shared_cores" '
        "(online) disagree; keep one of them, or let both name one class",
        vke_reclaimed="30",
        katalyst="shared_cores",
    ),
    _annotated(
        "greedy-online",
        'tke.cloud.tencent.com/qgpu-core-greedy "30" (offline) and tke.cloud.tencent.com/app-class "online" '
        "(online) disagree; keep one of them, or let both name one class",
        tke_greedy="30",
        app_class="online",
    ),
    _env(
        "none-and-memory",
        'NVIDIA_VISIBLE_DEVICES "none" and MGPU_MEMORY_MIB "4096" disagree; '
        "leave NVIDIA_VISIBLE_DEVICES out, or ask for no GPU",
        NVIDIA_VISIBLE_DEVICES="none",
        MGPU_MEMORY_MIB="4096",
    ),
    # Totals over the cards.
    _annotated(
        "units-indivisible",
        f'aliyun.com/gpu-mem "7" does not divide evenly over 2 GPUs; {_EVENLY}',
        gpu_mem="7",
        gpu_count="2",
    ),
    _annotated(
        "memory-indivisible",
        f'vke.volcengine.com/mgpu-memory "4097" does not divide evenly over 2 GPUs; {_EVENLY}',
        vke_memory="4097",
        multiple="2",
    ),
    _env(
        "env-memory-indivisible",
        f'MGPU_MEMORY_MIB "8000" does not divide evenly over 3 GPUs; {_EVENLY}',
        MGPU_MEMORY_MIB="8000",
        MGPU_GPUS="3",
    ),
    _annotated(
        "core-indivisible",
        f'mgpu.dev/core "101" does not divide evenly over 2 GPUs; {_EVENLY}',
        core="101",
        gpus="2",
    ),
    _env(
        "env-memory-small-each",
        f'MGPU_MEMORY_MIB "2046" is 1023 MiB a GPU over 2 GPUs; {_EACH_1024}',
        MGPU_MEMORY_MIB="2046",
        MGPU_GPUS="2",
    ),
    _annotated(
        "core-large-each",
        'vke.volcengine.com/mgpu-core "300" is 150 percent a GPU over 2 GPUs; allowed: 100 a GPU or less',
        vke_core="300",
        gpus="2",
    ),
    _env(
        "env-core-large-each",
        'MGPU_CORE "202" is 101 percent a GPU over 2 GPUs; allowed: 100 a GPU or less',
        MGPU_CORE="202",
        MGPU_GPUS="2",
    ),
    _env(
        "env-core-large",
        'MGPU_CORE "150" is more than one GPU; '
        "allowed: 1 to 100, a multiple of 100, or a number of GPUs beside it",
        MGPU_CORE="150",
    ),
    _both(
        "memory-annotation-count-env",
        {"vke_memory": "4097"},
        {"MGPU_GPUS": "2"},
        f'vke.volcengine.com/mgpu-memory "4097" does not divide evenly over 2 GPUs; {_EVENLY}',
    ),
]

NODE_REFUSALS = [
    _annotated(
        "node-card-too-small",
        "20000 MiB asked, but the largest GPU has 16160 MiB; ask for less, or for more GPUs",
        vke_memory="20000",
    ),
    _annotated(
        "node-units-too-many",
        "17237 MiB asked, but the largest GPU has 16160 MiB; ask for less, or for more GPUs",
        gpu_mem="16",
    ),
    _env(
        "node-env-card-too-small",
        "16161 MiB asked, but the largest GPU has 16160 MiB; ask for less, or for more GPUs",
        MGPU_MEMORY_MIB="16161",
    ),
    _env(
        "node-cards-too-small",
        "20000 MiB on each of 2 GPUs asked, but the largest GPU has 16160 MiB; "
        "ask for less, or for more GPUs",
        MGPU_MEMORY_MIB="40000",
        MGPU_GPUS="2",
    ),
    _env("node-too-few", "3 GPUs asked, and this node has 2; ask for at most 2", MGPU_GPUS="3"),
    _annotated(
        "node-core-too-few", "3 GPUs asked, and this node has 2; ask for at most 2", vcuda_core="300"
    ),
    _env(
        "node-visible-too-few",
        "2 GPUs asked, and NVIDIA_VISIBLE_DEVICES leaves 1 of 2; ask for at most 1, or name others",
        NVIDIA_VISIBLE_DEVICES="1",
        MGPU_GPUS="2",
    ),
    _annotated(
        "node-percent-small",
        "1 percent of a GPU asked, but that share of its memory is 161 MiB and the least is 256 MiB; "
        "ask for more of it",
        percent="1",
    ),
    _env(
        "node-core-alone-small",
        "1 percent of a GPU asked, but that share of its memory is 161 MiB and the least is 256 MiB; "
        "ask for more core, or for memory beside it",
        MGPU_CORE="1",
    ),
]

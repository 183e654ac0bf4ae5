import sys
from pathlib import Path

import pytest

from native_sched.daemon.node.config import NodeConfig
from oci_specs import forms, identity, parse, vocabulary
from oci_specs.request import Identity, Memory, Request
from tests.support.commands import run

CONFIG = NodeConfig()
VKE = "vke.volcengine.com"
TKE = "tke.cloud.tencent.com"
QOS_LEVEL = "katalyst.kubewharf.io/qos_level"


def asked(
    annotations: dict[str, str] | None = None, env: dict[str, str] | None = None, config: NodeConfig = CONFIG
) -> Request | None:
    return parse.request(annotations or {}, env or {}, config)


def request(
    annotations: dict[str, str] | None = None, env: dict[str, str] | None = None, config: NodeConfig = CONFIG
) -> Request:
    result = asked(annotations, env, config)
    assert result is not None
    return result


# Every value of every key, and what it means: (annotations, member of the request, value).
MEANINGS = [
    ({QOS_LEVEL: "shared_cores"}, "qos", "online"),
    ({QOS_LEVEL: "reclaimed_cores"}, "qos", "offline"),
    ({QOS_LEVEL: "dedicated_cores"}, "qos", "online"),
    ({f"{TKE}/app-class": "online"}, "qos", "online"),
    ({f"{TKE}/app-class": "offline"}, "qos", "offline"),
    ({"mgpu.dev/qos": "online"}, "qos", "online"),
    ({"mgpu.dev/qos": "offline"}, "qos", "offline"),
    ({f"{VKE}/reclaimed-mgpu-core": "30"}, "qos", "offline"),
    ({f"{VKE}/reclaimed-mgpu-core": "30", QOS_LEVEL: "reclaimed_cores"}, "qos", "offline"),
    ({f"{TKE}/qgpu-core-greedy": "30"}, "qos", "offline"),
    ({f"{VKE}/mgpu-core": "30"}, "qos", "online"),
    ({f"{VKE}/mgpu-core": "30", QOS_LEVEL: "reclaimed_cores"}, "qos", "offline"),
    ({}, "qos", "online"),
    *(
        ({f"{VKE}/mgpu-compute-policy": name}, "policy", name)
        for name in ("fixed-share", "guaranteed-burst-share", "native-burst-share")
    ),
    *(
        ({key: name}, "policy", policy)
        for key in (f"{TKE}/qgpu-schedule-policy", "mgpu.dev/policy")
        for name, policy in {
            "best-effort": "native-burst-share",
            "be": "native-burst-share",
            "fixed-share": "fixed-share",
            "fs": "fixed-share",
            "burst-share": "guaranteed-burst-share",
            "bs": "guaranteed-burst-share",
        }.items()
    ),
    ({"mgpu.dev/policy": "0"}, "policy", "native-burst-share"),
    ({"mgpu.dev/policy": "1"}, "policy", "fixed-share"),
    ({"mgpu.dev/policy": "2"}, "policy", "guaranteed-burst-share"),
    ({"mgpu.dev/policy": "native-burst-share"}, "policy", "native-burst-share"),
    ({"mgpu.dev/policy": "guaranteed-burst-share"}, "policy", "guaranteed-burst-share"),
    ({}, "policy", None),
    ({f"{VKE}/mgpu-memory": "4096"}, "memory", Memory(mib=4096)),
    ({f"{VKE}/mgpu-memory": "256"}, "memory", Memory(mib=256)),
    ({f"{TKE}/qgpu-memory": "4"}, "memory", Memory(mib=4096)),
    ({"tencent.com/vcuda-memory": "1"}, "memory", Memory(mib=256)),
    ({"tencent.com/vcuda-memory": "24"}, "memory", Memory(mib=6144)),
    ({"mgpu.dev/memory-64mib": "64"}, "memory", Memory(mib=4096)),
    ({"mgpu.dev/memory-64mib": "64", "mgpu.dev/memory-spare-mib": "63"}, "memory", Memory(mib=4033)),
    ({"mgpu.dev/memory-reclaimable": "true", "mgpu.dev/qos": "offline"}, "reclaimable", True),
    ({"mgpu.dev/memory-reclaimable": "false"}, "reclaimable", False),
    ({"mgpu.dev/reclaimable-memory-mib": "4096"}, "reclaimable", True),
    ({"mgpu.dev/reclaimable-memory-mib": "4096"}, "qos", "offline"),
    ({"mgpu.dev/reclaimable-memory-mib": "4096", "mgpu.dev/memory-64mib": "64"}, "reclaimable", True),
    (
        {f"{VKE}/mgpu-memory": "1000", "mgpu.dev/memory-64mib": "16", "mgpu.dev/memory-spare-mib": "24"},
        "memory",
        Memory(mib=1000),
    ),
    ({"aliyun.com/gpu-mem": "8"}, "memory", Memory(units=8)),
    ({"mgpu.dev/memory-mib": "1000"}, "memory", Memory(mib=1000)),
    ({"mgpu.dev/memory-percent": "30", "mgpu.dev/gpus": "2"}, "memory", Memory(percent=30)),
    ({f"{VKE}/mgpu-memory": "4096", f"{TKE}/qgpu-memory": "4"}, "memory", Memory(mib=4096)),
    ({f"{VKE}/mgpu-core": "30"}, "core_percent", 30),
    ({f"{VKE}/reclaimed-mgpu-core": "100"}, "core_percent", 100),
    ({f"{TKE}/qgpu-core": "5"}, "core_percent", 5),
    ({f"{TKE}/qgpu-core-greedy": "95"}, "core_percent", 95),
    ({"tencent.com/vcuda-core": "99"}, "core_percent", 99),
    ({"tencent.com/vcuda-core": "300"}, "core_percent", 300),
    ({"mgpu.dev/core": "1"}, "core_percent", 1),
    ({"mgpu.dev/core": "150", "mgpu.dev/gpus": "2"}, "core_percent", 150),
    ({f"{VKE}/mgpu-core": "200"}, "count", 2),
    ({f"{VKE}/mgpu-core": "30"}, "count", 1),
    ({f"{VKE}/mgpu-core": "100", f"{VKE}/container-multiple-gpu": "2"}, "count", 2),
    ({f"{VKE}/container-multiple-gpu": "3"}, "count", 3),
    ({f"{VKE}/container-multiple-gpu": "2, 2"}, "count", 2),
    ({"aliyun.com/gpu-count": "2"}, "count", 2),
    ({"mgpu.dev/gpus": "2"}, "count", 2),
    ({"mgpu.dev/gpus": "GPU-a,MIG-b"}, "count", 2),
    ({"mgpu.dev/gpus": "GPU-a, MIG-b"}, "uuids", ("GPU-a", "MIG-b")),
    ({"mgpu.dev/gpus": "MIG-GPU-a/1/0"}, "uuids", ("MIG-GPU-a/1/0",)),
    ({"aliyun.com/gpu-count": "2", "mgpu.dev/gpus": "GPU-a,GPU-b"}, "uuids", ("GPU-a", "GPU-b")),
    ({vocabulary.PLACEMENT: '{"": ["GPU-a", "MIG-b"], "other": ["GPU-c"]}'}, "placed", ("GPU-a", "MIG-b")),
]


@pytest.mark.parametrize(("annotations", "member", "value"), MEANINGS)
def test_meaning(annotations: dict[str, str], member: str, value: object) -> None:
    asking = any(
        key.name in annotations
        for key in vocabulary.KEYS
        if key.meaning in (vocabulary.MEMORY, vocabulary.CORE, vocabulary.CARDS)
    )
    extra = {} if asking else {"mgpu.dev/memory-mib": "4096"}
    assert getattr(request({**annotations, **extra}), member) == value


def test_every_key_is_in_the_meanings() -> None:
    tried = {name for annotations, _, _ in MEANINGS for name in annotations}
    assert tried == {key.name for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION}


def test_every_form_is_a_key_s_and_every_key_has_a_form() -> None:
    assert {key.form for key in vocabulary.KEYS} - {"aliyun-units"} == set(forms.FORMS) - {"gib-units"}


def test_environment_says_the_same() -> None:
    env = {
        "MGPU_QOS": "offline",
        "MGPU_POLICY": "2",
        "MGPU_MEMORY_MIB": "8192",
        "MGPU_CORE": "50",
        "MGPU_GPUS": "2",
    }
    assert request(env=env) == Request(
        qos="offline",
        policy="guaranteed-burst-share",
        count=2,
        memory=Memory(mib=8192),
        core_percent=50,
    )


def test_nearest_source_wins_for_each_meaning() -> None:
    env = {"MGPU_QOS": "offline", "MGPU_MEMORY_MIB": "not read", "MGPU_CORE": "50", "MGPU_GPUS": "2"}
    result = request({f"{VKE}/mgpu-memory": "4096", "mgpu.dev/gpus": "1"}, env)
    assert (result.qos, result.memory, result.core_percent, result.count) == (
        "offline",
        Memory(mib=4096),
        50,
        1,
    )


def test_offline_core_in_an_annotation_wins_over_a_class_in_the_environment() -> None:
    assert request({f"{TKE}/qgpu-core-greedy": "30"}, {"MGPU_QOS": "online"}).qos == "offline"


def test_aliyun_memory_in_mib_where_node_config_says_so() -> None:
    config = NodeConfig(aliyun_unit="mib")
    assert request({"aliyun.com/gpu-mem": "8065"}, config=config).memory == Memory(mib=8065)


# What NVIDIA_VISIBLE_DEVICES does beside a request for memory in the environment, and alone.
VISIBLE = [
    ("all", (), None),
    ("", (), None),
    ("void", (), None),
    ("0", ("0",), 1),
    ("0,1", ("0", "1"), 2),
    ("1,01,1", ("1",), 1),
    ("GPU-a,1", ("GPU-a", "1"), 2),
    ("MIG-b", ("MIG-b",), 1),
    ("0:1", ("0:1",), 1),
]


@pytest.mark.parametrize(("value", "candidates", "alone"), VISIBLE)
def test_visible_devices(value: str, candidates: tuple[str, ...], alone: int | None) -> None:
    env = {"NVIDIA_VISIBLE_DEVICES": value}
    beside = request(env={**env, "MGPU_MEMORY_MIB": "4096"})
    assert (beside.candidates, beside.count, beside.whole_cards) == (candidates, 1, False)
    result = asked(env=env)
    assert (result and (result.count, result.candidates, result.whole_cards)) == (
        (alone, candidates, True) if alone else None
    )


def test_visible_all_alone_is_every_card_where_node_config_says_so() -> None:
    config = NodeConfig(visible_devices_all="whole-cards")
    result = request(env={"NVIDIA_VISIBLE_DEVICES": "all"}, config=config)
    assert (result.count, result.candidates, result.whole_cards) == (None, (), True)
    assert request(env={"NVIDIA_VISIBLE_DEVICES": "all", "MGPU_CORE": "200"}, config=config).count == 2
    assert asked(config=config) is None
    assert asked(env={"NVIDIA_VISIBLE_DEVICES": "void"}, config=config) is None


def test_visible_none_alone_and_beside_a_nearer_request() -> None:
    env = {"NVIDIA_VISIBLE_DEVICES": "none"}
    assert asked(env=env) is None
    assert request({"mgpu.dev/gpus": "1"}, env).candidates == ()


def test_uuids_in_an_annotation_set_visible_devices_aside() -> None:
    assert request({"mgpu.dev/gpus": "GPU-a"}, {"NVIDIA_VISIBLE_DEVICES": "0"}).candidates == ()
    assert request({"mgpu.dev/gpus": "2"}, {"NVIDIA_VISIBLE_DEVICES": "0,1"}).candidates == ("0", "1")
    assert request(env={"MGPU_GPUS": "GPU-a", "NVIDIA_VISIBLE_DEVICES": "0"}).candidates == ("0",)


def test_schedulers_placement_is_each_containers_own_and_sets_visible_devices_aside() -> None:
    asking = {
        "mgpu.dev/memory-mib": "4096",
        vocabulary.PLACEMENT: '{"web": ["GPU-a"], "db": ["GPU-b"]}',
    }
    placed = request({**asking, "io.kubernetes.cri.container-name": "db"}, {"NVIDIA_VISIBLE_DEVICES": "0"})
    assert (placed.placed, placed.candidates) == (("GPU-b",), ())
    assert asked({**asking, "io.kubernetes.cri.container-name": "debugger"}) is None


def test_cards_with_neither_memory_nor_core_are_whole() -> None:
    assert request({"mgpu.dev/gpus": "2"}).whole_cards
    assert not request({"mgpu.dev/gpus": "2", "mgpu.dev/core": "200"}).whole_cards
    assert not request({"mgpu.dev/gpus": "2", "aliyun.com/gpu-mem": "8"}).whole_cards


# (annotations, env, whether something names a GPU, whether the default config makes a request of it)
NAMING = [
    ({}, {}, False, False),
    ({"app": "web"}, {"PATH": "/bin", "CUDA_VERSION": "12"}, False, False),
    ({QOS_LEVEL: "shared_cores"}, {"MGPU_QOS": "offline"}, False, False),
    ({QOS_LEVEL: "system_cores"}, {}, False, False),
    ({f"{VKE}/mgpu-compute-policy": "no such"}, {"MGPU_POLICY": "no such"}, False, False),
    ({}, {"NVIDIA_VISIBLE_DEVICES": ""}, False, False),
    ({}, {"NVIDIA_VISIBLE_DEVICES": "void"}, False, False),
    ({}, {"NVIDIA_VISIBLE_DEVICES": "none"}, False, False),
    ({}, {"NVIDIA_VISIBLE_DEVICES": "all"}, True, False),
    ({f"{VKE}/container-multiple-gpu": "0"}, {}, True, False),
    ({f"{VKE}/container-multiple-gpu": "0,0", f"{VKE}/mgpu-memory": "4096"}, {}, True, False),
    ({}, {"NVIDIA_VISIBLE_DEVICES": "0"}, True, True),
    ({"aliyun.com/gpu-mem": "8"}, {}, True, True),
    ({}, {"MGPU_MEMORY_MIB": "4096"}, True, True),
    ({}, {"MGPU_CORE": "30"}, True, True),
    ({}, {"MGPU_GPUS": "1"}, True, True),
]


@pytest.mark.parametrize(("annotations", "env", "named", "requested"), NAMING)
def test_names_gpu(annotations: dict[str, str], env: dict[str, str], named: bool, requested: bool) -> None:
    assert vocabulary.names_gpu(annotations, env) is named
    assert (asked(annotations, env) is not None) is requested


def test_misspelt_key_of_ours_is_not_overlooked() -> None:
    assert vocabulary.names_gpu({"mgpu.dev/memory": "4096"}, {})
    assert vocabulary.names_gpu({}, {"MGPU_MEMORY": "4096"})


def test_variables_of_mgpu_programs_are_no_keys() -> None:
    programs = {
        "MGPU_ROOT": "/run/mgpu",
        "MGPU_PREFIX": "/opt/mgpu",
        # A Kubernetes Service called mgpu, and one called mgpu-metrics.
        "MGPU_SERVICE_HOST": "10.0.0.1",
        "MGPU_SERVICE_PORT_HTTP": "80",
        "MGPU_PORT": "tcp://10.0.0.1:80",
        "MGPU_PORT_80_TCP_ADDR": "10.0.0.1",
        "MGPU_METRICS_SERVICE_HOST": "10.0.0.2",
        "MGPU_METRICS_PORT_9394_TCP": "tcp://10.0.0.2:9394",
    }
    assert not vocabulary.names_gpu({}, programs)
    assert vocabulary.admission_env(programs) == {}
    assert asked(env=programs) is None
    assert request(env={**programs, "MGPU_GPUS": "1"}).count == 1


def test_admission_carries_what_mgpud_needs_and_no_more() -> None:
    annotations = {
        "aliyun.com/gpu-mem": "8",
        "mgpu.dev/misspelt": "1",
        "io.kubernetes.cri.sandbox-name": "pod",
        "secret": "x",
    }
    assert set(vocabulary.admission_annotations(annotations)) == set(annotations) - {"secret"}
    env = {"MGPU_CORE": "1", "MGPU_MISSPELT": "1", "NVIDIA_VISIBLE_DEVICES": "all", "PASSWORD": "x"}
    assert set(vocabulary.admission_env(env)) == set(env) - {"PASSWORD"}


IDENTITIES = [
    (
        {
            "io.kubernetes.cri.sandbox-name": "web-0",
            "io.kubernetes.cri.sandbox-namespace": "shop",
            "io.kubernetes.cri.container-name": "app",
        },
        Identity(pod="web-0", namespace="shop", container="app"),
    ),
    (
        {
            "io.kubernetes.pod.name": "web-0",
            "io.kubernetes.pod.namespace": "shop",
            "io.kubernetes.container.name": "app",
            "io.kubernetes.cri-o.ContainerName": "k8s_app_web-0_shop_1_0",
        },
        Identity(pod="web-0", namespace="shop", container="app"),
    ),
    (
        {"io.kubernetes.cri-o.KubeName": "web-0", "io.kubernetes.cri-o.Namespace": "shop"},
        Identity(pod="web-0", namespace="shop", container="abc123"),
    ),
    # No kubelet made it.
    (
        {
            "io.kubernetes.cri-o.KubeName": "web-0",
            "io.kubernetes.cri-o.Metadata": '{"name":"app","attempt":1}',
        },
        Identity(pod="web-0", container="app"),
    ),
    *[
        ({"io.kubernetes.cri-o.Metadata": text}, Identity(container="abc123"))
        for text in ("{}", "[]", '{"name":1}', '{"name":""}', "{", "[" * 100_000)
    ],
    ({}, Identity(pod=None, namespace=None, container="abc123")),
]


@pytest.mark.parametrize(("annotations", "expected"), IDENTITIES)
def test_identity(annotations: dict[str, str], expected: Identity) -> None:
    result = parse.request({**annotations, "mgpu.dev/gpus": "1"}, {}, CONFIG, container_id="abc123")
    assert result is not None
    assert result.identity == expected


def test_sandboxes() -> None:
    assert identity.is_sandbox({"io.kubernetes.cri.container-type": "sandbox"})
    assert identity.is_sandbox({"io.kubernetes.cri-o.ContainerType": "sandbox"})
    assert not identity.is_sandbox({"io.kubernetes.cri.container-type": "container"})
    assert not identity.is_sandbox({})


def test_create_path_imports_nothing_heavy() -> None:
    root = Path(__file__).resolve().parents[3]
    code = (
        f"import sys; before = set(sys.modules); sys.path.insert(0, {str(root)!r}); "
        "from oci_specs import identity, vocabulary; from oci_specs.refusal import Refusal; "
        "vocabulary.names_gpu({'a': 'b'}, {}); identity.is_sandbox({}); Refusal('a', 'b', 'c').line(); "
        "print(*sorted(set(sys.modules) - before))"
    )
    out = run(sys.executable, "-ISs", "-c", code)
    assert set(out.split()) <= {
        "__future__",
        "oci_specs",
        "oci_specs.identity",
        "oci_specs.refusal",
        "oci_specs.vocabulary",
    }


def test_reclaimable_memory_by_variables_is_that_by_annotations() -> None:
    """Docker before 25 has no annotations."""
    by_variables = request(
        {}, {"MGPU_MEMORY_MIB": "512", "MGPU_QOS": "offline", "MGPU_MEMORY_RECLAIMABLE": "true"}
    )
    annotations = {
        "mgpu.dev/memory-mib": "512",
        "mgpu.dev/qos": "offline",
        "mgpu.dev/memory-reclaimable": "true",
    }
    assert by_variables == request(annotations)
    assert by_variables.reclaimable

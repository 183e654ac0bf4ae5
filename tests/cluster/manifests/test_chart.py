"""The Helm chart, rendered by Helm's own library and compared with the plain manifests it is made from."""

import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cluster.admission import manifests
from cluster.admission.names import DEFAULT_SCHEDULER, SCHEDULER, Settings
from cluster.agent import place
from cluster.chart import edits, switches, write
from tests.cluster import discovery, helm
from tests.cluster.helm import HelmRefused, Object
from tools import release

PLAIN = write.PLAIN
TEMPLATES = write.FOLDER / "templates"
BY_HAND = {"NOTES.txt", "_choices.tpl", "metrics.yaml", "node-config.yaml"}
# The plain manifest names one version; the chart takes the cluster's.
KUBE_SCHEDULER = "registry.k8s.io/kube-scheduler:v1.34.0"
Objects = dict[tuple[str, str], Object]
Change = Callable[[Objects], object]


def by_name(found: Iterable[Object]) -> Objects:
    listed = list(found)
    made = {(each["kind"], each["metadata"]["name"]): each for each in listed}
    assert len(made) == len(listed)
    return made


@cache
def _read(text: str) -> str:
    return json.dumps(helm.documents(text))


def documents(text: str) -> Objects:
    """New ones at each call."""
    return by_name(json.loads(_read(text)))


def plain(name: str) -> Objects:
    return documents((PLAIN / name).read_text())


def admission(**settings: Any) -> Objects:
    return documents(manifests.text(Settings(**settings)))


def installed() -> Objects:
    """The objects for kubectl apply, the namespace aside."""
    names = (
        "agent.yaml",
        "node.yaml",
        "node-scope.yaml",
        "uninstall.yaml",
        "runtimeclass.yaml",
        "scheduler.yaml",
    )
    return {key: value for name in names for key, value in plain(name).items()} | admission()


def chart(values: Mapping[str, Any]) -> Objects:
    scheduler = {"image": KUBE_SCHEDULER, **values.get("scheduler", {})}
    return by_name(helm.rendered({**values, "scheduler": scheduler}))


def pods(objects: Objects) -> list[Object]:
    return [
        each["spec"]["template"]["spec"] for each in objects.values() if "template" in each.get("spec", {})
    ]


def nodes(objects: Objects) -> list[Object]:
    return [objects["DaemonSet", name]["spec"]["template"]["spec"] for name in ("mgpu-agent", "mgpu-node")]


def container(objects: Objects, kind: str, name: str, which: str) -> Object:
    [found] = [
        each
        for each in objects[kind, name]["spec"]["template"]["spec"]["containers"]
        if each["name"] == which
    ]
    program: Object = found
    return program


def image(objects: Objects) -> None:
    for each in pods(objects):
        for program in (*each.get("initContainers", []), *each["containers"]):
            program["image"] = program["image"].replace("mgpu:0.1.0", "registry.example/mgpu:7")
    container(objects, "Deployment", "mgpu-scheduler", "extender")["image"] = "registry.example/other:7"


def image_alone(objects: Objects) -> None:
    image(objects)
    container(objects, "Deployment", "mgpu-scheduler", "extender")["image"] = (
        "registry.example/mgpu-scheduler:7"
    )


def pull_secrets(objects: Objects) -> None:
    for each in pods(objects):
        each["imagePullSecrets"] = [{"name": "registry"}]


def node_selector(objects: Objects) -> None:
    for each in nodes(objects):
        each["nodeSelector"]["zone"] = "a"


def tolerations(objects: Objects) -> None:
    for each in (*nodes(objects), objects["DaemonSet", "mgpu-uninstall"]["spec"]["template"]["spec"]):
        each["tolerations"] = [{"key": "gpu", "operator": "Exists"}]


def node_option(objects: Objects, option: str) -> None:
    container(objects, "DaemonSet", "mgpu-node", "node")["args"].append(option)


def dra(objects: Objects) -> None:
    node_option(objects, "--dra")
    objects |= plain("claims/deviceclasses.yaml")


def hami(objects: Objects) -> None:
    node_option(objects, "--hami")
    objects |= admission(hami=True)


def score(objects: Objects) -> None:
    command = container(objects, "Deployment", "mgpu-scheduler", "extender")["command"]
    command[command.index("--score=fgd")] = "--score=spread"


def replicas(objects: Objects) -> None:
    objects["Deployment", "mgpu-scheduler"]["spec"]["replicas"] = 1


def no_scheduler(objects: Objects) -> None:
    for key in plain("scheduler.yaml"):
        del objects[key]
    objects |= admission(scheduler=DEFAULT_SCHEDULER)


def metrics(objects: Objects) -> None:
    node_option(objects, "--metrics=0.0.0.0:9411")


def metrics_tls(objects: Objects) -> None:
    metrics(objects)
    node_option(objects, "--metrics-tls=/etc/mgpu-metrics")
    pod = objects["DaemonSet", "mgpu-node"]["spec"]["template"]["spec"]
    mount = {"name": "metrics-tls", "mountPath": "/etc/mgpu-metrics", "readOnly": True}
    container(objects, "DaemonSet", "mgpu-node", "node")["volumeMounts"].append(mount)
    pod["volumes"].insert(-1, {"name": "metrics-tls", "secret": {"secretName": "tls"}})


CHANGES: dict[str, tuple[Object, Change]] = {
    "nothing": ({}, lambda objects: None),
    "image": (
        {"image": "registry.example/mgpu:7", "scheduler": {"extenderImage": "registry.example/other:7"}},
        image,
    ),
    "image alone": ({"image": "registry.example/mgpu:7"}, image_alone),
    "imagePullSecrets": ({"imagePullSecrets": [{"name": "registry"}]}, pull_secrets),
    "nodeSelector": ({"nodeSelector": {"zone": "a"}}, node_selector),
    "tolerations": ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, tolerations),
    "dra": ({"dra": True}, dra),
    "hami": ({"hami": True}, hami),
    "score": ({"scheduler": {"score": "spread"}}, score),
    "metrics": ({"metrics": {"enabled": True}}, metrics),
    "metrics by TLS": ({"metrics": {"enabled": True, "tlsSecret": "tls"}}, metrics_tls),
    "replicas": ({"scheduler": {"replicas": 1}}, replicas),
    "no scheduler": ({"scheduler": {"enabled": False}}, no_scheduler),
}


def test_committed_templates_are_what_the_code_writes() -> None:
    there = {path.name: path.read_text() for path in TEMPLATES.iterdir() if path.name not in BY_HAND}
    assert there == write.templates(), "write them anew: python -m cluster.chart"


def test_versions_are_this_release() -> None:
    found = yaml.safe_load((write.FOLDER / "Chart.yaml").read_text())
    assert (found["version"], found["appVersion"]) == (release.version(), release.version())


def test_edit_that_finds_nothing_is_an_error() -> None:
    with pytest.raises(edits.Lost, match="replicas"):
        edits.edited(
            "scheduler.yaml", (PLAIN / "scheduler.yaml").read_text().replace("replicas: 2", "replicas: 3")
        )


def test_every_value_is_declared_and_has_a_default() -> None:
    schema = yaml.safe_load((write.FOLDER / "values.schema.json").read_text())["properties"]
    values = yaml.safe_load((write.FOLDER / "values.yaml").read_text())
    assert values.keys() == schema.keys() - {"global"}
    for name in ("scheduler", "metrics"):
        assert values[name].keys() == schema[name]["properties"].keys()
    used = set(re.findall(r"\.Values\.(\w+)", "".join(path.read_text() for path in TEMPLATES.iterdir())))
    assert used == values.keys()


@pytest.mark.parametrize("which", CHANGES)
def test_value_changes_what_it_has_to_and_nothing_else(which: str) -> None:
    values, change = CHANGES[which]
    wanted = installed()
    change(wanted)
    assert chart(values) == wanted


def test_rendered_objects_are_valid_by_the_published_schema() -> None:
    plain_ones = installed()
    values = {"image": "other/mgpu", "dra": True, "aliyunMib": True, "hami": True}
    made = chart(values | CHANGES["nodeSelector"][0] | CHANGES["imagePullSecrets"][0])
    changed = [each for key, each in made.items() if each != plain_ones.get(key)]
    assert len(changed) > 5
    for each in changed:
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize(
    ("hami", "aliyun_mib", "scheduler"), list(itertools.product([False, True], repeat=3))
)
def test_admission_is_written_for_every_choice(hami: bool, aliyun_mib: bool, scheduler: bool) -> None:
    values = {"hami": hami, "aliyunMib": aliyun_mib, "scheduler": {"enabled": scheduler}}
    wanted = admission(
        hami=hami,
        aliyun_mib=aliyun_mib,
        scheduler=SCHEDULER if scheduler else DEFAULT_SCHEDULER,
    )
    made = chart(values)
    assert {key: each for key, each in made.items() if key in wanted} == wanted
    admits = {key for key in made if "Admission" in key[0] or "Webhook" in key[0]}
    assert {name for _, name in admits - wanted.keys()} == {"mgpu-node-scope"}


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ({"aliyunMib": True}, {"aliyun_unit": "mib"}),
        ({"nodeConfig": "hold_ms = 50\nquiet_ms = 2"}, {"hold_ms": 50, "quiet_ms": 2}),
        ({"aliyunMib": True, "nodeConfig": "hold_ms = 0\n"}, {"aliyun_unit": "mib", "hold_ms": 0}),
    ],
)
def test_nodes_get_their_settings_by_a_pod_that_is_new_for_them(values: Object, settings: Object) -> None:
    made, before = chart(values), installed()
    text = made["ConfigMap", "mgpu-node-config"]["data"]["node.toml"]
    assert tomllib.loads(text) == settings
    node, plain_node = (each["DaemonSet", "mgpu-node"]["spec"]["template"] for each in (made, before))
    assert node["metadata"].pop("annotations").keys() == {"mgpu.dev/node-config"}
    assert node == plain_node
    assert made["DaemonSet", "mgpu-agent"] == before["DaemonSet", "mgpu-agent"]


def test_node_has_settings_of_its_own_in_place_of_those_of_all() -> None:
    own = {"n1": "hold_ms = 0\n", "n2.rack-3": "max_containers_per_card = 8"}
    made, before = chart({"nodeConfig": "hold_ms = 50", "nodeConfigs": own, "aliyunMib": True}), installed()
    data = made["ConfigMap", "mgpu-node-config"]["data"]
    assert {name: tomllib.loads(text) for name, text in data.items()} == {
        "node.toml": {"aliyun_unit": "mib", "hold_ms": 50},
        "n1.toml": {"aliyun_unit": "mib", "hold_ms": 0},
        "n2.rack-3.toml": {"aliyun_unit": "mib", "max_containers_per_card": 8},
    }
    marks = [
        chart({"nodeConfigs": text})["DaemonSet", "mgpu-node"]["spec"]["template"]["metadata"]["annotations"]
        for text in (own, {"n1": "hold_ms = 1"})
    ]
    assert marks[0] != marks[1], "pods that are new for it"
    assert made["DaemonSet", "mgpu-agent"] == before["DaemonSet", "mgpu-agent"]


@pytest.mark.parametrize(("node", "hold_ms"), [("n1", 0), ("n2", 50), ("", 50)])
def test_agent_takes_the_settings_of_its_node(tmp_path: Path, node: str, hold_ms: int) -> None:
    (tmp_path / "node.toml").write_text("hold_ms = 50")
    (tmp_path / "n1.toml").write_text("hold_ms = 0")
    there = tmp_path / "run" / "node.toml"
    there.parent.mkdir()
    assert place.configure(tmp_path / "node.toml", there, node)
    assert tomllib.loads(there.read_text()) == {"hold_ms": hold_ms}
    assert not place.configure(tmp_path / "node.toml", there, node), "it is that already"


def test_pods_that_bring_settings_know_their_node() -> None:
    for name in ("agent.yaml", "node.yaml"):
        for each in yaml.safe_load_all((PLAIN / name).read_text()):
            if each["kind"] == "DaemonSet":
                [install] = each["spec"]["template"]["spec"]["initContainers"]
                assert [variable["name"] for variable in install["env"]] == ["NODE_NAME"]


def test_prometheus_in_the_cluster_finds_nodes_scheduler_alerts_and_dashboard() -> None:
    values = {"enabled": True, "tlsSecret": "tls", "podMonitor": True, "rules": True, "configMaps": True}
    made = chart({"metrics": values})
    for name, kind, workload in (
        ("mgpu", "DaemonSet", "mgpu-node"),
        ("mgpu-scheduler", "Deployment", "mgpu-scheduler"),
    ):
        monitor = made["PodMonitor", name]["spec"]
        template = made[kind, workload]["spec"]["template"]
        wanted = monitor["selector"]["matchLabels"]
        assert wanted.items() <= template["metadata"]["labels"].items()
        [endpoint] = monitor["podMetricsEndpoints"]
        ports = [port["name"] for each in template["spec"]["containers"] for port in each.get("ports", [])]
        assert endpoint["port"] in ports
    # The alerts name this job.
    labels = made["DaemonSet", "mgpu-node"]["spec"]["template"]["metadata"]["labels"]
    assert labels[made["PodMonitor", "mgpu"]["spec"]["jobLabel"]] == "mgpu"
    there = {name: (write.FOLDER / "grafana" / name).read_text() for name in ("alerts.yaml", "mgpu.json")}
    assert made["PrometheusRule", "mgpu"]["spec"] == yaml.safe_load(there["alerts.yaml"])
    alerts = made["ConfigMap", "mgpu-alerts"]["data"]["alerts.yaml"]
    assert alerts.strip() == there["alerts.yaml"].strip()
    dashboard = made["ConfigMap", "mgpu-dashboard"]
    assert json.loads(dashboard["data"]["mgpu.json"]) == json.loads(there["mgpu.json"])
    assert dashboard["metadata"]["labels"] == {"grafana_dashboard": "1"}


@pytest.mark.parametrize("minor", ["34", "36"])
def test_cluster_gets_a_scheduler_of_its_version(minor: str, tmp_path: Path) -> None:
    with discovery.cluster(minor) as kubeconfig:
        made = helm.proposed({}, kubeconfig, tmp_path)
    images = [program["image"] for each in pods(by_name(made)) for program in each["containers"]]
    assert f"registry.k8s.io/kube-scheduler:v1.{minor}.0" in images


@pytest.mark.parametrize(
    ("values", "namespace", "says"),
    [
        ({"admission": "policy"}, helm.NAMESPACE, "admission"),
        ({"scheduler": {"score": "best"}}, helm.NAMESPACE, "score"),
        ({"image": "registry.example/gpu@sha256:1"}, helm.NAMESPACE, "set scheduler.extenderImage too"),
        ({"metrics": {"podMonitor": True}}, helm.NAMESPACE, "set metrics.enabled too"),
        ({}, "default", "install with --namespace mgpu-system"),
    ],
)
def test_values_that_contradict_are_refused(values: Object, namespace: str, says: str) -> None:
    with pytest.raises(HelmRefused, match=says):
        helm.rendered(values, namespace=namespace)


def test_helm_lint_has_nothing_to_say() -> None:
    assert helm.lint({}) == []


def test_claims_are_a_line_of_the_plain_manifest_too() -> None:
    text = (PLAIN / "node.yaml").read_text()
    uncommented = documents(text.replace("# - --dra\n", "- --dra\n"))
    assert uncommented == {key: each for key, each in chart({"dra": True}).items() if key in uncommented}


def test_switches_that_depend_on_each_other_are_told_apart() -> None:
    def text(settings: Mapping[str, bool]) -> str:
        both = "both\n" if settings["a"] and settings["b"] else ""
        return f"first\n{'a' if settings['a'] else 'no a'}\n{both}last\n"

    made = switches.template({"a": ".a", "b": ".b"}, text)
    assert made.startswith("first\n{{- if .a }}\n")
    assert made.count("{{- if") == made.count("{{- end }}")

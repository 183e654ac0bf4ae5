"""The DRA driver in the node process, between a real mgpud on simulated cards, kubelet's protocol and an API
server; and real containers that are started with the CDI devices which it answers.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import kubernetes_validate
import pytest

from oci_specs.cdi import Registry
from sim import cards
from tests.cluster import api_server
from tests.cluster.api_server import ApiServer, Trouble
from tests.cluster.dra_support import (
    CLAIMS,
    SLICES,
    DraKubelet,
    Json,
    allocated,
    consumed,
    parameters,
    put,
    without_features,
)
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.lasting import shared_mgpu
from tests.support.started import Foreground
from tests.support.steady import killed
from tests.support.waiting import until

MEMORY_MAX_KIB = 80 << 10
ALL = {"DRAConsumableCapacity", "DRADeviceTaints"}
PODS = {"web-0": "uid-0", "web-1": "uid-1"}
KIND = "mgpu.dev/claim"
NVML = """
import json, pynvml
pynvml.nvmlInit()
cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
totals = [pynvml.nvmlDeviceGetMemoryInfo(card).total >> 20 for card in cards]
print(json.dumps(dict(zip(map(pynvml.nvmlDeviceGetUUID, cards), totals))))
"""


class World:
    """process: the node process; features: those that the API server has."""

    def __init__(self, mgpu: Arbiter, api: ApiServer, folder: Path, features: set[str]) -> None:
        self.mgpu, self.api, self.folder = mgpu, api, folder
        self.kubelet = DraKubelet(folder)
        self.cdi = folder / "cdi"
        self.log = folder / "node.log"
        self.uuids: list[str] = [card["uuid"] for card in mgpu.listing()["cards"]]
        self.names = [uuid.lower() for uuid in self.uuids]
        self._kubeconfig = api.kubeconfig(folder)
        api.keeps = lambda value: (
            without_features(value, features) if value.get("spec", {}).get("driver") == "mgpu.dev" else value
        )

    def start(self, *options: str) -> None:
        argv: list[str | Path] = [sys.executable, "-m", "cluster.node", "--node-name", "n1", "--dra"]
        argv += ["--root", self.mgpu.root, "--kubelet", self.folder, "--cdi", self.cdi]
        argv += ["--kubeconfig", self._kubeconfig, *options]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(argv, stderr=out, stdout=out)
        until(self.kubelet.finds, "kubelet finds the driver")
        self.kubelet.register()

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(10) == 0, self.log.read_text()

    def lines(self) -> str:
        return self.log.read_text()

    def slices(self) -> list[Json]:
        ours = [each for each in self.api.all(SLICES) if each["spec"].get("driver") == "mgpu.dev"]
        return [each for each in ours if each["spec"].get("nodeName") == "n1"]

    def devices(self) -> list[Json]:
        return [device for each in self.slices() for device in each["spec"]["devices"]]

    def claims(self) -> list[str]:
        """Names of those that mgpud knows."""
        return sorted(each["name"] for each in self.mgpu.ask("claims")["claims"])


mgpu = shared_mgpu("v100-16:2")


@contextmanager
def running(mgpu: Arbiter, folder: Path, *options: str, features: set[str] = ALL) -> Iterator[World]:
    with api_server.running() as api:
        api.put("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {}})
        world = World(mgpu, api, folder, features)
        world.start(*options)
        try:
            yield world
        finally:
            world.stop()
            arbiter.until_empty(mgpu)
            for each in mgpu.ask("claims")["claims"]:
                mgpu.ask("claims", unprepare=each["uid"])


@pytest.fixture
def world(mgpu: Arbiter, tmp_path: Path) -> Iterator[World]:
    with running(mgpu, tmp_path) as made:
        yield made


def prepared(world: World, claim: Json) -> list[str]:
    """The CDI devices that kubelet hands to the engine, once each."""
    put(world.api, claim)
    answer = world.kubelet.prepare(claim)[claim["metadata"]["uid"]]
    assert not answer.error, answer.error
    return list(dict.fromkeys(cdi for device in answer.devices for cdi in device.cdi_device_ids))


def refusal(world: World, claim: Json) -> str:
    answer = world.kubelet.prepare(claim)[claim["metadata"]["uid"]]
    assert not answer.devices
    assert answer.error.startswith("mgpu: ")
    assert "\n" not in answer.error
    return str(answer.error)


def unprepared(world: World, claim: Json) -> str:
    return str(world.kubelet.unprepare(claim)[claim["metadata"]["uid"]].error)


def env(world: World, cdi_devices: list[str]) -> dict[str, str]:
    """What the CDI devices bring, by an engine's own reading of the specs, and nothing but variables."""
    names = [each.removeprefix(f"{KIND}=") for each in cdi_devices]
    edits = Registry.load([str(world.cdi)]).edits(KIND, names)
    assert edits.devices == edits.mounts == []
    assert edits.hooks == {}
    return dict(entry.split("=", 1) for entry in edits.env)


def of_pod(name: str, namespace: str = "team-a") -> dict[str, str]:
    """Annotations as containerd's CRI writes them."""
    return {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "main",
        "io.kubernetes.cri.sandbox-name": name,
        "io.kubernetes.cri.sandbox-namespace": namespace,
        "io.kubernetes.cri.sandbox-uid": PODS.get(name, "another"),
    }


def seen(world: World, annotations: Mapping[str, str], variables: dict[str, str]) -> dict[str, int] | str:
    """MiB of each card that a container of that pod sees, or what it is refused with."""
    with bundle("python3", "-c", NVML, annotations=dict(annotations), env=variables) as made:
        done = made.run(world.mgpu.runtime)
    if done.status:
        return done.err
    found: dict[str, int] = json.loads(done.out)
    return found


@contextmanager
def waiting(world: World, made: Bundle) -> Iterator[Foreground]:
    """A container that runs until it is told a line."""
    with made.running(world.mgpu.runtime) as container:
        assert container.line() == "up"
        yield container


def test_kubelet_is_told_who_the_driver_is(world: World) -> None:
    info = world.kubelet.register()
    assert (info.type, info.name) == ("DRAPlugin", "mgpu.dev")
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert world.kubelet.health() == dict.fromkeys(world.names, 1)
    world.kubelet.register(error="a driver of that name is there")
    until(
        lambda: "kubelet refuses the DRA driver: a driver of that name is there" in world.lines(),
        "it is told",
    )


def test_cards_are_devices_and_not_resources_too(world: World) -> None:
    until(lambda: len(world.devices()) == 2, "both GPUs are published")
    [one] = world.slices()
    kubernetes_validate.validate(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **one}, "1.36", strict=True
    )
    assert [each["name"] for each in world.devices()] == world.names
    assert world.devices()[0]["attributes"]["architecture"] == {"string": "volta"}
    assert not (world.folder / "device-plugins").exists()

    def node() -> Json:
        return world.api.there("/api/v1/nodes/n1")

    until(lambda: "annotations" in node()["metadata"], "the inventory is written")
    assert json.loads(node()["metadata"]["annotations"]["mgpu.dev/inventory"])["cards"] == []
    assert set(node()["status"].get("capacity", {}).values()) <= {"0"}


def test_slices_are_put_right_and_others_are_left_alone(world: World) -> None:
    theirs = {"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": "no pool", "devices": 3}}
    elsewhere = {"spec": {"driver": "mgpu.dev", "nodeName": "n2", "pool": {"name": "n2", "generation": "x"}}}
    for name, each in (("theirs", theirs), ("elsewhere", elsewhere)):
        world.api.put(SLICES, {"metadata": {"name": name}, **each})
    until(lambda: len(world.devices()) == 2, "both GPUs are published")
    [one] = world.slices()
    broken = json.loads(json.dumps(one))
    broken["spec"]["devices"].pop()
    world.api.put(SLICES, broken)
    until(lambda: len(world.devices()) == 2, "what was changed is put right")
    assert world.slices()[0]["spec"]["pool"]["generation"] > one["spec"]["pool"]["generation"]
    world.api.put(SLICES, {"metadata": {"name": "stale"}, "spec": {**one["spec"], "devices": "none"}})
    until(lambda: [each["metadata"]["name"] for each in world.slices()] == ["n1-mgpu.dev-0"], "one is left")
    world.api.remove(f"{SLICES}/n1-mgpu.dev-0")
    until(lambda: len(world.devices()) == 2, "what was deleted is made anew")
    for name, each in (("theirs", theirs), ("elsewhere", elsewhere)):
        found = world.api.there(f"{SLICES}/{name}")
        assert found["spec"] == each["spec"]


def test_slices_are_published_once(world: World) -> None:
    until(lambda: len(world.devices()) == 2, "both GPUs are published")
    before = sum(method == "PATCH" and "resourceslices" in path for method, path in world.api.requests)
    world.api.hang_up()
    until(lambda: world.api.requests[-1][0] == "GET", "it lists anew")
    world.mgpu.ask("health")
    after = sum(method == "PATCH" and "resourceslices" in path for method, path in world.api.requests)
    assert before == after == 1


def test_without_consumable_capacity_whole_cards_are_offered(mgpu: Arbiter, tmp_path: Path) -> None:
    with running(mgpu, tmp_path, features=set()) as world:
        until(lambda: "claims get whole GPUs" in world.lines(), "it is said")
        until(lambda: len(world.devices()) == 2, "both GPUs are published")
        assert all("allowMultipleAllocations" not in each for each in world.devices())
        claim = allocated("whole", [{"device": world.names[1]}], pods=PODS)
        variables = env(world, prepared(world, claim))
        assert seen(world, of_pod("web-0"), variables) == {world.uuids[1]: 16160}
        assert world.lines().count("claims get whole GPUs") == 1


@pytest.mark.parametrize("features", [ALL, set()], ids=["taints", "no taints"])
def test_lost_card_is_told(tmp_path: Path, private_host: None, features: set[str]) -> None:
    with arbiter.running("v100-16:2") as own, running(own, tmp_path, features=features) as world:
        until(lambda: len(world.devices()) == 2, "both GPUs are published")
        cards.ask(own.root / "sim" / "admin.sock", "lose 1")

        def told() -> bool:
            by_name = {each["name"]: each for each in world.devices()}
            if "DRADeviceTaints" not in features:
                return list(by_name) == world.names[:1]
            return [each["key"] for each in by_name[world.names[1]].get("taints", [])] == ["mgpu.dev/lost"]

        until(told, "the lost GPU is tainted, or gone")
        assert world.kubelet.health() == {world.names[0]: 1, world.names[1]: 2}
        claim = put(world.api, allocated("late", [{"device": world.names[1]}], pods=PODS))
        assert f"GPU {world.uuids[1]} is lost" in refusal(world, claim)


def test_two_namespaces_share_a_card_by_claims(world: World) -> None:
    first = allocated("a", [consumed(world.names[0], "4Gi", "30")], pods=PODS)
    second = allocated(
        "b", [consumed(world.names[0], "8Gi", "50")], pods={"web-0": "uid-0"}, namespace="team-b"
    )
    variables = env(world, prepared(world, first))
    other = env(world, prepared(world, second))
    with bundle("sh", "-c", "echo up; read line", annotations=of_pod("web-0"), env=variables) as made:
        with waiting(world, made) as container:
            [row] = world.mgpu.containers()
            assert (row["pod"], row["namespace"]) == ("web-0", "team-a")
            assert [(card["memory_mib"], card["core_percent"]) for card in row["cards"]] == [(4096, 30)]
            assert seen(world, of_pod("web-0", "team-b"), other) == {world.uuids[0]: 8192}
            container.tell()
            assert container.end() == 0


def test_several_cards_offline_by_parameters(world: World) -> None:
    devices = [consumed(name, "2Gi", "20") for name in world.names]
    config = [parameters("FromClass", **{"class": "offline"})]
    claim = allocated("two", devices, pods=PODS, config=config)
    variables = env(world, prepared(world, claim))
    assert len(variables) == 1
    with bundle("sh", "-c", "echo up; read line", annotations=of_pod("web-1"), env=variables) as made:
        with waiting(world, made) as container:
            [row] = world.mgpu.containers()
            assert row["class"] == "offline"
            assert [card["memory_mib"] for card in row["cards"]] == [2048, 2048]
            container.tell()
            assert container.end() == 0


def test_answer_names_devices_requests_and_shares(world: World) -> None:
    results = [
        consumed(world.names[0], "1Gi", request="a"),
        consumed(world.names[1], "1Gi", request="b/first"),
    ]
    claim = put(world.api, allocated("three", results, pods=PODS))
    devices = world.kubelet.prepare(claim)["uid-of-three"].devices
    assert [list(each.request_names) for each in devices] == [["a"], ["b"]]
    assert [each.device_name for each in devices] == world.names
    assert {each.pool_name for each in devices} == {"n1"}
    assert [each.share_id for each in devices] == [f"share-of-{name}" for name in world.names]
    assert len({cdi for each in devices for cdi in each.cdi_device_ids}) == 2


def test_kubelet_that_knows_the_older_version_only(world: World) -> None:
    world.kubelet = DraKubelet(world.folder, knows=["v1beta1.DRAPlugin"])
    world.kubelet.register()
    claim = allocated("old", [consumed(world.names[0], "1Gi")], pods=PODS)
    assert prepared(world, claim) == ["mgpu.dev/claim=uid-of-old-0"]
    assert unprepared(world, claim) == ""


def test_forged_variable_gets_nothing(world: World) -> None:
    claim = allocated("mine", [consumed(world.names[0], "1Gi")], pods={"web-0": "uid-0"})
    variables = env(world, prepared(world, claim))
    for theirs in (of_pod("web-1"), of_pod("web-0", "team-b"), of_pod("thief"), {}):
        said = seen(world, theirs, variables)
        assert isinstance(said, str)
        assert "is not reserved for the container's pod" in said
    assert unprepared(world, claim) == ""
    said = seen(world, of_pod("web-0"), variables)
    assert isinstance(said, str)
    assert "no such claim is prepared on this node" in said


def test_pod_that_shares_a_claim_later_is_let_in(world: World) -> None:
    claim = allocated("ours", [consumed(world.names[0], "2Gi", "0", "2")], pods={"web-0": "uid-0"})
    variables = env(world, prepared(world, claim))
    assert seen(world, of_pod("web-0"), variables) == {world.uuids[0]: 1024}
    # The scheduler reserves it for the second pod, then binds that.
    later = allocated("ours", [consumed(world.names[0], "2Gi", "0", "2")], pods=PODS)
    put(world.api, later)
    world.api.put(
        "/api/v1/namespaces/team-a/pods",
        {
            "metadata": {"name": "web-1", "namespace": "team-a", "uid": "uid-1"},
            "spec": {"nodeName": "n1", "resourceClaims": [{"name": "g", "resourceClaimName": "ours"}]},
        },
    )
    until(lambda: len(world.mgpu.ask("claims")["claims"][0]["pods"]) == 2, "mgpud knows the second pod")
    assert seen(world, of_pod("web-1"), variables) == {world.uuids[0]: 1024}


def test_claim_in_use_is_not_unprepared(world: World) -> None:
    claim = allocated("busy", [consumed(world.names[0], "1Gi")], pods=PODS)
    variables = env(world, prepared(world, claim))
    with bundle("sh", "-c", "echo up; read line", annotations=of_pod("web-0"), env=variables) as made:
        with waiting(world, made) as container:
            assert "claim team-a/busy cannot be unprepared: container web-0/main still holds" in unprepared(
                world, claim
            )
            assert prepared(world, claim) == ["mgpu.dev/claim=uid-of-busy-0"]
            container.tell()
            assert container.end() == 0
    until(lambda: unprepared(world, claim) == "", "kubelet tries again")
    assert unprepared(world, claim) == ""
    assert world.claims() == []
    assert list(world.cdi.iterdir()) == []


def test_claims_outlive_every_restart(world: World) -> None:
    claim = allocated("kept", [consumed(world.names[1], "3Gi")], pods=PODS)
    variables = env(world, prepared(world, claim))
    world.stop()
    killed(world.mgpu, "mgpud")
    assert seen(world, of_pod("web-0"), variables) == {world.uuids[1]: 3072}
    world.start()
    # After a restart of its own, kubelet prepares again.
    assert env(world, prepared(world, claim)) == variables
    assert seen(world, of_pod("web-0"), variables) == {world.uuids[1]: 3072}


def test_lost_claims_are_restored_from_the_api_server(world: World) -> None:
    claim = allocated("lost", [consumed(world.names[1], "3Gi")], pods=PODS)
    variables = env(world, prepared(world, claim))
    prepared(world, gone := allocated("gone", [consumed(world.names[1], "3Gi")], pods=PODS))
    world.stop()
    world.api.remove(CLAIMS.format("team-a") + "/gone")
    for each in world.mgpu.ask("claims")["claims"]:
        world.mgpu.ask("claims", unprepare=each["uid"])
    world.start()
    until(lambda: world.claims() == ["lost"], "mgpud knows it again")
    assert seen(world, of_pod("web-0"), variables) == {world.uuids[1]: 3072}
    assert unprepared(world, gone) == ""
    world.stop()
    shutil.rmtree(world.cdi)
    world.start()
    until(
        lambda: world.cdi.exists() and len(list(world.cdi.iterdir())) == 1, "its CDI device is there again"
    )
    assert env(world, ["mgpu.dev/claim=uid-of-lost-0"]) == variables


def test_claim_that_is_deleted_while_it_is_prepared(world: World) -> None:
    claim = allocated("brief", [consumed(world.names[0], "1Gi")], pods=PODS)
    prepared(world, claim)
    world.api.remove(CLAIMS.format("team-a") + "/brief")
    assert "claim team-a/brief: it is deleted" in refusal(world, claim)
    put(world.api, allocated("brief", [consumed(world.names[0], "1Gi")], pods=PODS, uid="another"))
    assert "it was deleted, and another has its name" in refusal(world, claim)
    assert unprepared(world, claim) == ""
    assert world.claims() == []


def test_one_claim_that_is_refused_leaves_the_others(world: World) -> None:
    good = put(world.api, allocated("good", [consumed(world.names[0], "1Gi")], pods=PODS))
    bad = put(world.api, allocated("bad", [{"device": "gpu-of-yesterday"}], pods=PODS))
    absent = allocated("absent", [{"device": world.names[0]}], pods=PODS)
    strange = put(world.api, allocated("strange", [{"device": world.names[0], "request": None}], pods=PODS))
    answers = world.kubelet.prepare(good, bad, absent, strange)
    assert len(answers) == 4
    assert not answers["uid-of-good"].error
    assert "is no GPU of this node" in answers["uid-of-bad"].error
    assert "it is deleted" in answers["uid-of-absent"].error
    assert "cannot be read (AttributeError" in answers["uid-of-strange"].error
    assert world.claims() == ["good"]


def test_api_server_in_trouble_is_one_line_and_no_end(world: World) -> None:
    claim = put(world.api, allocated("slow", [consumed(world.names[0], "1Gi")], pods=PODS))
    world.api.troubles.append(Trouble(lambda method, path: "resourceclaims" in path, status=500, times=1))
    assert "the API server answered 500; kubelet tries again" in refusal(world, claim)
    world.api.troubles.clear()
    assert prepared(world, claim) == ["mgpu.dev/claim=uid-of-slow-0"]
    assert world.process.poll() is None


def test_sockets_that_somebody_removes_are_made_anew(world: World) -> None:
    for name in ("plugins/mgpu.dev/dra.sock", "plugins_registry/mgpu.dev-reg.sock"):
        (world.folder / name).unlink()
    until(world.kubelet.finds, "kubelet finds the driver again")
    world.kubelet.register()
    claim = allocated("again", [consumed(world.names[0], "1Gi")], pods=PODS)
    assert prepared(world, claim) == ["mgpu.dev/claim=uid-of-again-0"]


def test_slices_stay_for_the_next_start(mgpu: Arbiter, tmp_path: Path) -> None:
    with running(mgpu, tmp_path) as world:
        until(lambda: len(world.devices()) == 2, "both GPUs are published")
        world.stop()
        assert len(world.devices()) == 2
        world.start()


def test_memory_is_bounded(world: World) -> None:
    claims = [allocated(f"c{n}", [consumed(world.names[0], "1Gi")], pods=PODS) for n in range(20)]
    for claim in claims:
        put(world.api, claim)
    assert not any(answer.error for answer in world.kubelet.prepare(*claims).values())
    status = Path(f"/proc/{world.process.pid}/status").read_text()
    [peak] = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    assert peak <= MEMORY_MAX_KIB

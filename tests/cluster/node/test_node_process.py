"""The node process itself, between a real mgpud on simulated cards, a kubelet's protocol and an API
server.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.node import published
from cluster.node.published import SERVING
from cluster.resources import inventory, table
from oci_specs.refusal import Refusal
from sim import cards
from tests.cluster import api_server
from tests.cluster.api_server import Trouble
from tests.cluster.node_process import CORE, World, running
from tests.support.arbiter import Arbiter
from tests.support.commands import attempt, run
from tests.support.lasting import shared_mgpu
from tests.support.steady import killed
from tests.support.waiting import until

MEMORY_MAX_KIB = 80 << 10
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


mgpu = shared_mgpu("v100-16:2")


@pytest.fixture
def world(mgpu: Arbiter, tmp_path: Path) -> Iterator[World]:
    with running(mgpu, tmp_path) as made:
        yield made


def is_published(world: World) -> bool:
    return inventory.ANNOTATION in world.node()["metadata"].get("annotations", {})


def test_kubelet_and_api_server_hear_of_the_same_cards(world: World) -> None:
    until(world.offered, "kubelet has the share of both GPUs")
    until(
        lambda: "vke.volcengine.com/mgpu-memory" in world.node()["status"]["capacity"], "capacity is there"
    )
    node = world.node()
    found = inventory.read(node["metadata"]["annotations"][inventory.ANNOTATION])
    assert [card.uuid for card in found.cards] == [card["uuid"] for card in world.mgpu.listing()["cards"]]
    assert {card.architecture for card in found.cards} == {"volta"}
    assert node["status"]["capacity"] == {
        "cpu": "2",
        **{
            each.name: str(each.amount(found))
            for each in table.offered(found)
            if each.by == "status" and each.amount(found)
        },
    }
    with urllib.request.urlopen(f"http://127.0.0.1:{world.port}/healthz", timeout=5) as answer:
        assert (answer.status, answer.read()) == (200, b"ok\n")
    assert node["metadata"]["labels"] == {published.SERVING: "true"}
    # It is written once, and is not written anew while it stays.
    writes = [each for each in world.api.requests if each[0] == "PATCH"]
    assert writes == [("PATCH", "/api/v1/nodes/n1/status")]


def test_refused_pod_reads_why_in_its_events(world: World) -> None:
    world.api.put("/api/v1/namespaces/shop/pods", {"metadata": {"name": "web-0", "namespace": "shop"}})
    annotations = {
        "io.kubernetes.cri.sandbox-name": "web-0",
        "io.kubernetes.cri.sandbox-namespace": "shop",
        "io.kubernetes.cri.container-name": "main",
        "mgpu.dev/memory-64mib": "1000",
    }
    of_no_pod = {"mgpu.dev/memory-64mib": "1000"}
    for each in (of_no_pod, annotations):
        with pytest.raises(Refusal) as refused:
            world.mgpu.ask(
                "admit",
                container_id=f"c{len(each)}",
                bundle="/b",
                rootfs="/r",
                annotations=each,
                env={},
                reach=[],
                seccomp_listener=None,
            )
    events = "/apis/events.k8s.io/v1/namespaces/shop/events"
    until(lambda: bool(world.api.all(events)), "the event is posted", timeout_s=20)
    [event] = [each for each in world.api.all(events) if each["regarding"]["name"] == "web-0"]
    pod = world.api.there("/api/v1/namespaces/shop/pods/web-0")
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert event["note"] == f"main: {refused.value.message}; {refused.value.hint}"
    assert (event["type"], event["reason"]) == ("Warning", "GPURefused")
    assert not any("/namespaces//" in path for _, path in world.api.requests)


def test_label_of_an_earlier_time_is_taken_away_where_mgpud_does_not_serve(tmp_path: Path) -> None:
    """As after a reboot, before mgpud is up."""
    nobody = Arbiter(tmp_path / "none", 0)
    with running(nobody, tmp_path, labels={published.SERVING: "true", "other": "stays"}) as world:
        until(lambda: world.node()["metadata"]["labels"] == {"other": "stays"}, "the label is gone")
        assert world.kubelet.fake.registrations == []
        assert len(world.lines()) == 1


def test_nothing_is_placed_beside_nvidias_own_plugin(world: World) -> None:
    until(world.offered, "kubelet has the share of both GPUs")
    path = world.kubelet.fake.folder / "nvidia-gpu.sock"
    with socket.socket(socket.AF_UNIX) as nvidia:
        nvidia.bind(os.fspath(path))
        nvidia.listen(100)
        until(lambda: world.kubelet.fake.allocatable(CORE) == 0, "nothing is allocatable")
        until(lambda: published.SERVING not in world.node()["metadata"]["labels"], "the label is gone")
    # Its socket stays behind, and nobody listens there.
    until(world.offered, "the share is back")
    until(lambda: published.SERVING in world.node()["metadata"]["labels"], "the label is back")
    assert [line for line in world.lines() if "nvidia-gpu.sock" in line]


def test_nothing_is_placed_where_nothing_starts(world: World) -> None:
    until(world.offered, "kubelet has the share of both GPUs")
    odd = world.mgpu.root / "cdi" / "odd.json"
    odd.write_text("{")
    try:
        until(lambda: world.kubelet.fake.allocatable(CORE) == 0, "nothing is allocatable")
        until(lambda: published.SERVING not in world.node()["metadata"]["labels"], "the label is gone")
        assert [line for line in world.lines() if str(odd) in line]
    finally:
        odd.unlink()
    until(world.offered, "the share is back")
    until(lambda: published.SERVING in world.node()["metadata"]["labels"], "the label is back")


def test_withdrawing_leaves_the_node_as_it_was(mgpu: Arbiter, tmp_path: Path) -> None:
    with running(mgpu, tmp_path, {"other": "stays"}) as world:
        until(lambda: published.SERVING in world.node()["metadata"]["labels"], "the label is there")
        until(lambda: len(world.node()["status"]["capacity"]) > 1, "capacity is there")
        own = {"metadata": {"name": "n1-mgpu.dev-1"}, "spec": {"driver": "mgpu.dev", "nodeName": "n1"}}
        other = {"metadata": {"name": "n2-mgpu.dev-1"}, "spec": {"driver": "mgpu.dev", "nodeName": "n2"}}
        for each in (own, other):
            world.api.put(SLICES, each)
        world.process.send_signal(signal.SIGTERM)
        world.process.wait(10)
        assert inventory.ANNOTATION in world.node()["metadata"]["annotations"], "the next start finds it"
        argv = [sys.executable, "-m", "cluster.node", "--withdraw", "--node-name", "n1"]
        printed = run(*argv, "--kubeconfig", world.api.kubeconfig(tmp_path))
        assert printed == "node n1 offers no GPUs of mgpu any more; looking whether that stays so\n"
        assert world.node()["metadata"]["labels"] == {"other": "stays"}
        assert world.node()["metadata"]["annotations"] == {}
        assert world.node()["status"]["capacity"] == {"cpu": "2"}
        assert [each["metadata"]["name"] for each in world.api.all(SLICES)] == ["n2-mgpu.dev-1"]


def test_node_waits_for_an_engine_that_knows_the_runtime(mgpu: Arbiter, tmp_path: Path) -> None:
    """kubelet shows the handlers that the engine had at its last start."""
    handlers = [{"name": ""}, {"name": "runc"}]
    with running(mgpu, tmp_path, told={"runtimeHandlers": handlers}) as world:
        until(lambda: is_published(world), "the inventory is there")
        assert SERVING not in world.node()["metadata"]["labels"]
        assert (
            sum("does not know the runtime mgpu; restart containerd" in line for line in world.lines()) == 1
        )
        node = world.node()
        node["status"]["runtimeHandlers"].append({"name": "mgpu"})
        world.api.put("/api/v1/nodes", node)
        until(lambda: SERVING in world.node()["metadata"]["labels"], "pods may come")


def test_node_takes_no_new_pods_before_its_plugin_goes(world: World) -> None:
    """kubelet refuses for good what it is sent without a plugin."""
    until(world.offered, "kubelet has the share of both GPUs")
    until(lambda: SERVING in (world.node()["metadata"].get("labels") or {}), "it serves")
    world.process.send_signal(signal.SIGTERM)
    until(lambda: SERVING not in world.node()["metadata"]["labels"], "nothing new is sent here")
    assert world.offered(), "what is on its way gets its devices"
    world.process.wait(10)
    until(lambda: not world.offered(), "the plugin is gone")
    assert SERVING not in world.node()["metadata"]["labels"]


def test_writes_of_a_dying_node_process_are_withdrawn_too(tmp_path: Path) -> None:
    with api_server.running() as api:
        node = {
            "metadata": {"name": "n1", "labels": {published.SERVING: "true"}},
            "status": {"capacity": {}},
        }
        api.put("/api/v1/nodes", node)
        argv = [sys.executable, "-m", "cluster.node", "--withdraw", "--node-name", "n1"]
        with subprocess.Popen(
            [*argv, "--kubeconfig", api.kubeconfig(tmp_path)], stdout=subprocess.PIPE
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline()
            node["status"] = {"capacity": {"mgpu.dev/memory-mib": "100", "aliyun.com/gpu-mem": "0"}}
            api.put("/api/v1/nodes", node)
            assert program.wait(60) == 0
        found = api.there("/api/v1/nodes/n1")
        assert found["metadata"]["labels"] == {}
        assert found["status"]["capacity"] == {"aliyun.com/gpu-mem": "0"}, "kubelet's own word for none"


@pytest.mark.parametrize(
    ("text", "number"), [("32320", 32320), ("32k", 32000), ("1M", 10**6), ("1.5", None), (None, None)]
)
def test_quantity_is_read_as_the_api_server_writes_whole_numbers(
    text: str | None, number: int | None
) -> None:
    assert published._number(text) == number


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kubeconfig", "/none"], "no way to the API server"),
        (["--no-api", "--healthz", "here"], "--healthz here is no HOST:PORT"),
        (["--no-api", "--healthz", "192.0.2.1:9"], "192.0.2.1"),
    ],
)
def test_bad_options_are_refused_in_one_line(options: list[str], says: str) -> None:
    done = attempt(sys.executable, "-m", "cluster.node", "--node-name", "n1", "--root", "/none", *options)
    assert done.status != 0
    [line] = [line for line in done.err.splitlines() if line.startswith("Error")]
    assert says in line
    assert "Traceback" not in done.err


def test_api_server_that_is_away_stops_nothing(mgpu: Arbiter, tmp_path: Path) -> None:
    with running(mgpu, tmp_path) as world:
        world.api.troubles.append(Trouble(lambda _method, _path: True, status=503))
        until(world.offered, "kubelet has the share of both GPUs")
        until(lambda: any("n1 is not written" in line for line in world.lines()), "it is said")
        world.api.troubles.clear()
        until(lambda: is_published(world), "the inventory is written")
        assert sum("n1 is not written" in line for line in world.lines()) == 1


def test_mgpud_that_is_killed_changes_nothing(world: World) -> None:
    until(world.offered, "kubelet has the share of both GPUs")
    killed(world.mgpu, "mgpud")
    world.mgpu.ask("health")
    assert set(world.kubelet.fake.lists.values()) == {1}
    assert not [line for line in world.lines() if "mgpud" in line]


def memory_kib(process: subprocess.Popen[bytes]) -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


def test_memory_is_bounded(world: World) -> None:
    until(lambda: world.offered() and is_published(world), "all is told")
    assert memory_kib(world.process) <= MEMORY_MAX_KIB


def test_card_that_falls_off_the_bus_takes_its_share_along(mgpu: Arbiter, tmp_path: Path) -> None:
    """Last, since it stays so."""
    with running(mgpu, tmp_path) as world:
        until(world.offered, "kubelet has the share of both GPUs")
        uuid = mgpu.listing()["cards"][1]["uuid"]
        cards.ask(mgpu.root / "sim" / "admin.sock", "lose 1")
        until(lambda: world.kubelet.fake.allocatable(CORE) == 100, "its share is gone")
        until(
            lambda: (
                world.node()["status"]["capacity"].get("vke.volcengine.com/mgpu-memory") == "16160"
                and not json.loads(world.node()["metadata"]["annotations"][inventory.ANNOTATION])["cards"][
                    1
                ]["healthy"]
            ),
            "the API server hears of it",
        )
        assert [line for line in world.lines() if f"GPU 1 ({uuid}) is lost" in line]

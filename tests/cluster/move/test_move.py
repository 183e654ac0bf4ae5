"""A node from HAMi to mgpu and back, against an API server in memory, with HAMi's and mgpu's parts played."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cluster.api.client import Client
from cluster.move import steps
from cluster.move.main import main
from oci_specs.refusal import Refusal
from tests.cluster import api_server
from tests.cluster.api_server import ApiServer, Trouble
from tests.support.places import REPOSITORY

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/team/pods"
HAMIS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}]
PAGE = (REPOSITORY / "docs" / "hami.md").read_text()


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server.running() as running:
        running.put(
            NODES,
            {
                "metadata": {
                    "name": "n1",
                    "labels": {"gpu": "on"},
                    "annotations": {"hami.io/node-nvidia-register": "GPU-0", "other": "stays"},
                },
                "spec": {},
                "status": {"allocatable": {"nvidia.com/gpu": "10"}},
            },
        )
        yield running


def put(server: ApiServer, name: str, limits: dict[str, str], *, node: str = "n1", **meta: Any) -> None:
    server.put(
        PODS,
        {
            "metadata": {"name": name, "namespace": "team", "ownerReferences": OWNER, **meta},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {"phase": "Running"},
        },
    )


def node(server: ApiServer) -> dict[str, Any]:
    return server.there(f"{NODES}/n1")


def change(server: ApiServer, *, offers: str | None = None, **labels: str) -> None:
    """As HAMi's plugin or mgpu-node would."""
    made = node(server)
    made["metadata"]["labels"] |= {
        name.replace("_", ".", 1).replace("_", "/"): at for name, at in labels.items()
    }
    if offers is not None:
        made["status"]["allocatable"]["nvidia.com/gpu"] = offers
    server.put(NODES, made)


def uninstalled(server: ApiServer) -> None:
    server.put(
        "/api/v1/namespaces/mgpu-system/pods",
        {
            "metadata": {
                "name": "mgpu-uninstall-x",
                "namespace": "mgpu-system",
                "labels": {"app.kubernetes.io/component": "uninstall"},
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "done"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        },
    )


def move(
    server: ApiServer,
    tmp_path: Path,
    doing: tuple[steps.Step, ...],
    answers: dict[str, Any],
    wait_s: float = 20.0,
) -> list[str]:
    """What was said. answers: what happens once a line has this part."""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        for part, answer in answers.items():
            if part in line:
                answer()

    async def work() -> None:
        async with Client(str(server.kubeconfig(tmp_path))) as api:
            await steps.run(api, "n1", doing, say, wait_s, pause_s=0.01)

    asyncio.run(work())
    return said


def pods(server: ApiServer) -> set[str]:
    return {each["metadata"]["name"] for each in server.all(PODS)}


def serve(server: ApiServer) -> None:
    change(server, mgpu_dev_serving="true")


def test_node_goes_over_and_back(server: ApiServer, tmp_path: Path) -> None:
    put(server, "web", HAMIS)
    put(server, "plain", {"cpu": "1"})
    put(server, "elsewhere", HAMIS, node="n2")
    said = move(
        server,
        tmp_path,
        steps.over(),
        {
            "HAMi's device plugin to go": lambda: change(server, offers="0"),
            "waits for the label mgpu.dev/serving": lambda: serve(server),
        },
    )
    assert pods(server) == {"plain", "elsewhere"}
    moved = node(server)
    assert moved["metadata"]["labels"] == {"mgpu.dev/node": "true", "mgpu.dev/serving": "true"}
    assert moved["metadata"]["annotations"] == {"other": "stays"}
    assert "unschedulable" not in moved["spec"]
    assert [line for line in said if "step" in line] == [
        f"node n1, step {number} of 5: {step.says}" for number, step in enumerate(steps.over(), 1)
    ]
    put(server, "ours", {**HAMIS, "mgpu.dev/gpus": "1", "mgpu.dev/memory-mib": "3000"})
    move(
        server,
        tmp_path,
        steps.back(),
        {
            "mgpu-uninstall to be ready": lambda: uninstalled(server),
            "plugin to offer": lambda: change(server, offers="10"),
        },
    )
    assert pods(server) == {"plain", "elsewhere"}
    there = node(server)
    assert (there["metadata"]["labels"]["gpu"], "mgpu.dev/node" in there["metadata"]["labels"]) == (
        "on",
        False,
    )
    assert "unschedulable" not in there["spec"]


def test_moved_node_is_moved_again_without_harm(server: ApiServer, tmp_path: Path) -> None:
    change(server, offers="0", mgpu_dev_serving="true")
    move(server, tmp_path, steps.over(), {})
    change(server, offers="32")
    put(server, "ours", {**HAMIS, "mgpu.dev/gpus": "1"})
    move(server, tmp_path, steps.over(), {})
    assert pods(server) == {"ours"}


def test_budget_is_waited_for_and_the_node_stays_cordoned(server: ApiServer, tmp_path: Path) -> None:
    put(server, "web", HAMIS)
    budget = Trouble(lambda method, path: path.endswith("/eviction"), status=429)
    server.troubles.append(budget)
    with pytest.raises(Refusal) as refused:
        move(server, tmp_path, steps.over(), {}, wait_s=0.1)
    assert refused.value.message.startswith("node n1 waits for pod team/web (")
    assert refused.value.message.endswith("), and is cordoned")
    assert node(server)["spec"]["unschedulable"] is True
    assert node(server)["metadata"]["labels"] == {"gpu": "on"}, "HAMi serves on"


def test_pod_that_nobody_makes_anew_is_not_evicted_unless_told(server: ApiServer, tmp_path: Path) -> None:
    put(server, "bare", HAMIS, ownerReferences=[])
    with pytest.raises(Refusal, match="team/bare on node n1 has no controller"):
        move(server, tmp_path, steps.over(), {})
    assert pods(server) == {"bare"}
    change(server, offers="0", mgpu_dev_serving="true")
    move(server, tmp_path, steps.over(force=True), {})
    assert pods(server) == set()


def test_plan_says_whose_nodes_are_and_what_would_be_refused(server: ApiServer, tmp_path: Path) -> None:
    allocated = {"hami.io/vgpu-node": "n1", "hami.io/vgpu-devices-allocated": "x"}
    put(server, "web", HAMIS, annotations=allocated)
    put(server, "cut", HAMIS, annotations={**allocated, "nvidia.com/vgpu-mode": "mig"})
    put(server, "near", HAMIS, annotations={"nvidia.com/numa-bind": "true"})
    before = len(server.requests)
    done = CliRunner().invoke(main, ["--kubeconfig", str(server.kubeconfig(tmp_path)), "plan"])
    assert done.exit_code == 0, done.output
    assert {method for method, _ in server.requests[before:]} == {"GET"}
    first, *lines = done.output.splitlines()
    assert first == "node n1: HAMi's, 3 pods with GPUs; mgpu-move over n1:"
    assert lines[:5] == [f"  {step.says}" for step in steps.over()]
    cut, near = lines[5:]
    assert cut.startswith('pod team/cut would be refused: nvidia.com/vgpu-mode is "mig"')
    assert near == "pod team/near: nvidia.com/numa-bind has no effect: mgpu knows no NUMA nodes of GPUs"


def test_trouble_is_one_line(server: ApiServer, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--kubeconfig", str(server.kubeconfig(tmp_path)), "over", "n9"])
    [step, trouble] = done.output.splitlines()
    assert (done.exit_code, step) == (1, "node n9, step 1 of 5: cordon")
    assert trouble.startswith("Error: ")
    assert CliRunner().invoke(main, ["--label", "gpu", "plan"]).exit_code == 2


def test_page_has_every_step() -> None:
    part = PAGE.partition("## Moving a cluster")[2]
    for step in (*steps.over(), *steps.back()):
        assert step.says in re.sub(r"\s+", " ", part.replace("`", "")), step.says

"""What the operator changes under running containers, seen from inside them and by the card's own account."""

import json
import uuid
from contextlib import ExitStack
from pathlib import Path

from PIL import Image

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.load import load, near, runs, shares_become, spans, time_of, working
from tests.support.places import IMAGE_NAME
from tests.support.programs import Programs, inside
from tests.support.waiting import until

MIB = 1 << 20
MS = 1_000_000
# What is queued outlasts a client's wait for a CPU.
SATURATE = ("saturate", "--kernel-us", "1000", "--queue", "64", "--seconds", "600")
# Rules are tested here, figures are the bench's: what a noisy machine may add to a share, in points.
NOISE = 12


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def started(docker: Dockerd, built: Programs, mib: int, *command: str) -> str:
    """Id of a container with `mib` MiB of one card that runs until the test ends."""
    return docker.docker(
        *[
            "run",
            "--detach",
            "--name",
            new_name(),
            "--network=none",
            f"--runtime={RUNTIME}",
            *built.docker_mount,
        ],
        *["--env", f"MGPU_MEMORY_MIB={mib}", IMAGE_NAME, *command],
    ).strip()


def total_mib(docker: Dockerd, container: str) -> int:
    """The card's memory as it is seen inside."""
    [gpu] = json.loads(docker.docker("exec", container, "gpustat", "--json"))["gpus"]
    return int(gpu["memory.total"])


def more(docker: Dockerd, container: str, mib: int) -> str:
    """What an allocation of a further process in the container is answered: 0, or 2 for out of memory."""
    return docker.try_docker("exec", container, inside("hold"), str(mib), "1", "0").out.strip()


def test_memory_grows_and_shrinks_under_a_running_container(
    docker: Dockerd, mgpu: Arbiter, built: Programs
) -> None:
    container = started(docker, built, 1024, inside("hold"), "300")
    until(
        lambda: docker.docker("logs", container) == "held 0\n", "it holds 300 MiB beside its context's 200"
    )
    assert total_mib(docker, container) == 1024
    assert more(docker, container, 1000) == "held 2"
    mgpu.mgpu("set", container[:12], "--memory", "2048")
    assert total_mib(docker, container) == 2048
    assert more(docker, container, 1000) == "held 0"
    until(lambda: mgpu.used_bytes() == [500 * MIB, 0], "the second process is gone")
    mgpu.mgpu("set", container[:12], "--memory", "500")
    assert total_mib(docker, container) == 500
    assert more(docker, container, 1) == "held 2"
    refused = mgpu.try_mgpu("set", container[:12], "--memory", "499", "--class", "offline")
    assert refused.err == (
        f"mgpu: 499 MiB asked, but container {container} holds 500 MiB on GPU 0; "
        "give it 500 MiB or more, or have it free memory first\n"
    )
    [row] = mgpu.containers()
    assert (row["cards"][0]["memory_mib"], row["class"]) == (500, "online")
    # What was given up can be had by others, and what was taken cannot.
    other = started(docker, built, 15660, "sleep", "60")
    assert total_mib(docker, other) == 15660
    refused = mgpu.try_mgpu("set", container[:12], "--memory", "16161")
    assert "ask for at most 16160 MiB" in refused.err


def test_shares_follow_the_quota_and_a_class_changes_sides() -> None:
    with arbiter.running("v100-16", node_config="hold_ms = 20\n") as mgpu, ExitStack() as stack:
        one, two = (stack.enter_context(load(mgpu, *SATURATE, qos="offline", core=30)) for _ in range(2))
        working(one)
        working(two)
        pids = [one.pid, two.pid]
        mgpu.mgpu("set", one.name, "--core", "60")
        shares_become(mgpu, pids, near([60, 30], NOISE))
        mgpu.mgpu("set", two.name, "--class", "online", "--core", "100")
        shares_become(mgpu, pids, lambda got: got[0] == 0 and got[1] > 90)
        state = one.row()["sched"]
        assert (state["busy"], state["enabled"]) == (True, False)
        mgpu.mgpu("set", two.name, "--class", "offline", "--core", "20")
        before = time_of(mgpu, pids[0])
        until(lambda: time_of(mgpu, pids[0]) > before, "offline runs again")


def test_policy_changes_under_running_containers() -> None:
    """One of them on both cards, which follow the operator's word together or not at all."""
    with arbiter.running("v100-16:2", node_config="policy = 'fixed-share'\n") as mgpu, ExitStack() as stack:
        both = stack.enter_context(load(mgpu, *SATURATE, qos="offline", core=40, gpus=2))
        one = stack.enter_context(load(mgpu, *SATURATE, qos="offline", core=20))
        working(both)
        working(one)
        pids = [both.pid, one.pid]
        for policy, wanted in (
            ("fixed-share", (20, 20)),
            ("native-burst-share", (50, 50)),
            ("guaranteed-burst-share", (50, 50)),
            ("fixed-share", (20, 20)),
        ):
            refused = mgpu.try_mgpu("policy", "--gpu", "0", policy)
            assert refused.err == (
                f"mgpu: container {both.name} runs on GPUs 0 and 1 as one, under one policy; "
                "set all of them: --gpu 0 --gpu 1\n"
            )
            mgpu.mgpu("policy", policy)
            shares_become(mgpu, pids, near(wanted, NOISE))
            assert {row["policy"] for row in mgpu.containers()} == {policy}


def test_top_and_timeline_say_what_the_cards_own_account_says(tmp_path: Path) -> None:
    config = "hold_ms = 20\npolicy = 'guaranteed-burst-share'\n"
    with arbiter.running("v100-16", node_config=config) as mgpu, ExitStack() as stack:
        offline = stack.enter_context(load(mgpu, *SATURATE, qos="offline"))
        working(offline)
        burst = (
            "burst",
            "--period-ms",
            "200",
            "--kernels",
            "20",
            "--kernel-us",
            "1000",
            "--requests",
            "500",
        )
        online = stack.enter_context(load(mgpu, *burst))
        working(online)
        pids = {offline.name: offline.pid, online.name: online.pid}
        frame = json.loads(mgpu.mgpu("top", "--once", "--interval", "2", "-o", "json"))
        names = ["--png", str(tmp_path / "a.png"), "--trace", str(tmp_path / "a.json")]
        found = json.loads(mgpu.mgpu("timeline", "--last", "2", "-o", "json", *names))
        own = spans(mgpu)
    shown = frame["cards"][0]["containers"]
    assert [row["container_id"] for row in shown] == [online.name, offline.name]
    for row in shown:
        theirs = [
            max(0, min(span.end_ns, found["end_ns"]) - max(span.start_ns, found["start_ns"]))
            for span in runs(own, pids[row["container_id"]])
        ]
        account = 100 * sum(theirs) / (found["end_ns"] - found["start_ns"])
        mine = [r for r in found["rows"] if r["label"] == row["container_id"][:12]]
        ran_ns = sum(r["end_ns"] - r["start_ns"] for r in mine if r["kind"] == "run")
        timeline = 100 * ran_ns / (found["end_ns"] - found["start_ns"])
        assert abs(timeline - account) < NOISE, (row, timeline, account)
        assert abs(row["share_percent"] - timeline) < NOISE, (row, timeline)
    assert {r["kind"] for r in found["rows"]} == {"run", "suspended", "hold"}
    held = [r["end_ns"] - r["start_ns"] for r in found["rows"] if r["kind"] == "hold"]
    assert sorted(held)[len(held) // 2] >= 19 * MS
    assert {e["ph"] for e in json.loads((tmp_path / "a.json").read_text())["traceEvents"]} == {"M", "X", "i"}
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"


def test_operator_sets_the_policy_of_a_free_card(docker: Dockerd, mgpu: Arbiter, built: Programs) -> None:
    mgpu.mgpu("policy", "--card", "0", "--card", "1", "be")
    started(docker, built, 1024, "sleep", "60")
    assert mgpu.containers()[0]["policy"] == "native-burst-share"
    refused = docker.try_docker(
        *["run", "--rm", "--network=none", f"--runtime={RUNTIME}", "--env", "MGPU_MEMORY_MIB=1024"],
        *["--env", "MGPU_POLICY=fs", IMAGE_NAME, "true"],
    )
    assert (
        "mgpu: policy fixed-share asked, but GPU 0 runs native-burst-share, set by the operator, "
        "GPU 1 runs native-burst-share, set by the operator; "
        "ask for native-burst-share, leave the policy out, or have the operator set another with mgpu policy"
    ) in refused.err


def test_refusal_names_the_container_that_set_the_policy(
    docker: Dockerd, mgpu: Arbiter, built: Programs
) -> None:
    first = started(docker, built, 1024, "sleep", "60")
    refused = docker.try_docker(
        *["run", "--rm", "--network=none", f"--runtime={RUNTIME}", "--env", "MGPU_MEMORY_MIB=1024"],
        *["--env", "MGPU_POLICY=be", "--env", "NVIDIA_VISIBLE_DEVICES=0", IMAGE_NAME, "true"],
    )
    assert (
        f'GPU 0 runs fixed-share, set by "{first}"; ask for fixed-share, leave the policy out, '
        in refused.err
    )

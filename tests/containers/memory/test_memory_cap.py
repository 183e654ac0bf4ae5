"""The cap as unmodified clients see it, and as it holds under load."""

import json
import os
import uuid
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.support.arbiter import Arbiter
from tests.support.commands import run
from tests.support.containerd import Containerd
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.lasting import lasting_mgpu
from tests.support.places import IMAGE_NAME
from tests.support.programs import Programs, inside
from tests.support.waiting import until

MIB = 1 << 20
ACK = {"aliyun.com/gpu-mem": "8", "aliyun.com/gpu-count": "2"}
NVML = """
import json, pynvml
pynvml.nvmlInit()
totals = []
for index in range(pynvml.nvmlDeviceGetCount()):
    card = pynvml.nvmlDeviceGetHandleByIndex(index)
    second = pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)
    totals.append([pynvml.nvmlDeviceGetMemoryInfo(card).total, second.total])
print(json.dumps(totals))
"""


lasting, mgpu = lasting_mgpu()


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def in_ctr(
    ctd: Containerd, mgpu: Arbiter, built: Programs, annotations: dict[str, str], *command: str
) -> str:
    options = ["--rm", *built.ctr_mount]
    return run(
        *ctd.run_argv(new_name(), *command, runtime=mgpu.runtime, annotations=annotations, options=options)
    )


@pytest.mark.parametrize(
    ("annotations", "caps_mib"), [(ACK, [4309, 4309]), ({"vke.volcengine.com/mgpu-memory": "4096"}, [4096])]
)
def test_every_client_sees_the_cap(
    ctd: Containerd, mgpu: Arbiter, built: Programs, annotations: dict[str, str], caps_mib: list[int]
) -> None:
    gpustat = json.loads(in_ctr(ctd, mgpu, built, annotations, "gpustat", "--json"))
    assert [card["memory.total"] for card in gpustat["gpus"]] == caps_mib
    nvitop = in_ctr(ctd, mgpu, built, annotations, "nvitop", "--once", "--ascii", "--no-unicode")
    assert nvitop.count(f"{caps_mib[0]}MiB") == len(caps_mib), nvitop
    nvml = json.loads(in_ctr(ctd, mgpu, built, annotations, "python3", "-c", NVML))
    assert nvml == [[cap * MIB, cap * MIB] for cap in caps_mib]
    capped = json.loads(in_ctr(ctd, mgpu, built, annotations, inside("capped")))
    assert [card["total_bytes"] for card in capped] == [cap * MIB for cap in caps_mib]
    assert [card["info_total_bytes"] for card in capped] == [cap * MIB for cap in caps_mib]
    for card in capped:
        # One byte over: CUDA_ERROR_OUT_OF_MEMORY. What is free can be had to the page, and life goes on.
        assert (card["over"], card["exact"], card["after"]) == (2, 0, 0)
    assert mgpu.used_bytes() == [0, 0]


def test_four_processes_and_exec_share_one_cap(docker: Dockerd, mgpu: Arbiter, built: Programs) -> None:
    name = new_name()
    docker.docker(
        *["run", "--detach", "--name", name, "--network=none", f"--runtime={RUNTIME}", *built.docker_mount],
        *["--env", "MGPU_MEMORY_MIB=2048", IMAGE_NAME, inside("hold"), "300", "4"],
    )
    # 300 MiB and a context of 200 MiB each: four of them take 2000 MiB of 2048.
    until(lambda: docker.docker("logs", name).count("held") == 4, "four processes hold or were refused")
    assert Counter(docker.docker("logs", name).split("\n")) == Counter(["held 0"] * 4 + [""])
    [container] = mgpu.containers()
    [card] = container["cards"]
    assert card["used_bytes"] == 4 * 500 * MIB
    assert len(container["processes"]) == 4
    seen = json.loads(docker.docker("exec", name, "gpustat", "--json"))["gpus"]
    assert [(gpu["memory.used"], gpu["memory.total"]) for gpu in seen] == [(2000, 2048)]
    # The process list is the container's own, by its own pids.
    assert sorted(process["gpu_memory_usage"] for process in seen[0]["processes"]) == [500] * 4
    assert {1} < {process["pid"] for process in seen[0]["processes"]}
    assert all(process["pid"] < 100 for process in seen[0]["processes"])
    refused = docker.try_docker("exec", name, inside("hold"), "1", "1", "0")
    assert refused.out == "held 2\n", "an exec'd process got memory that its container does not have"
    docker.docker("rm", "--force", name)
    until(lambda: mgpu.containers() == [], "the grant is back")
    assert mgpu.used_bytes() == [0, 0]


@pytest.mark.timeout(240)
def test_churn_in_eight_containers(mgpu: Arbiter, built: Programs) -> None:
    """64 processes in 8 containers and 100,000 random steps: at every stop the ledger equals the card's own
    account, and no container was ever above its cap."""
    containers, processes, rounds, steps = 8, 8, 4, 400
    assert containers * processes * rounds * steps >= 100_000
    with ExitStack() as stack:
        running = []
        for seed in range(1, containers + 1):
            command = ["churn", str(processes), str(rounds), str(steps), "300", str(seed)]
            made = stack.enter_context(built.bundle(*command, env={"MGPU_MEMORY_MIB": "3500"}))
            running.append(stack.enter_context(made.running(mgpu.runtime)))
        refused = 0
        for number in range(rounds + 1):
            said = [container.line() for container in running]
            if number < rounds:
                assert all(text.startswith(f"round {number} ") for text in said), said
                refused = sum(int(text.split()[-1]) for text in said)
            else:
                assert said == ["end"] * containers
            listing = mgpu.listing()
            assert len(listing["containers"]) == containers
            account = {card.index: card.used_bytes for card in mgpu.account().cards}
            assert {card["index"]: card["used_bytes"] for card in listing["cards"]} == account
            for container in listing["containers"]:
                for card in container["cards"]:
                    assert card["used_bytes"] <= card["peak_bytes"] <= card["memory_mib"] * MIB
                    held = [p["used_bytes"] for p in container["processes"] if p["card"] == card["index"]]
                    assert sum(held) == card["used_bytes"]
            by_process = {
                (card.index, file.tgid): file.bytes
                for card in mgpu.account().cards
                for file in card.files
                if file.bytes
            }
            assert by_process == {
                (process["card"], process["pid"]): process["used_bytes"]
                for container in listing["containers"]
                for process in container["processes"]
            }
            for container in running:
                container.tell()
        assert refused > 1000, "the test never pressed against the cap"
        for container in running:
            assert container.process.wait(60) == 0
    until(lambda: mgpu.containers() == [], "every grant is back")
    assert [card.used_bytes for card in mgpu.account().cards] == [0, 0]
    assert mgpu.used_bytes() == [0, 0]
    assert os.path.exists(mgpu.control)

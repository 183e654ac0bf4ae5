"""What make bench says of pods that wait for those that end."""

from typing import Any

import pytest

from tests.bench.churn import Asked, Cluster, FirstFit
from tests.bench.grid import judge
from tests.bench.traces import FOLDER
from tests.bench.traces_policy import Policy

pytestmark = pytest.mark.skipif(
    not (FOLDER / "evaluate.py").exists(), reason="the folder of the judge is not there: MGPU_TRACES"
)
NODE = {"name": "n", "num_gpu": 8, "cpu_milli": 8000, "memory_mib": 8000, "model": "T4"}


def asked(name: str, at_s: float, for_s: float, gpus: int = 1, milli: int = 1000) -> Asked:
    request = {"id": name, "cpu_milli": 1, "memory_mib": 1, "num_gpu": gpus, "gpu_milli": milli}
    return Asked(at_s, for_s, {**request, "gpu_spec": ""})


@pytest.mark.parametrize("policy", ["first fit", "fgd", "binpack"])
def test_request_without_room_waits_for_pods_that_end(policy: Any) -> None:
    ledger = judge().Ledger([NODE])
    decides = FirstFit(ledger) if policy == "first fit" else Policy([NODE], policy)
    cluster = Cluster(ledger, decides)
    comes = [
        asked("part", 0, 10, milli=500),
        asked("whole", 1, 5, gpus=8),
        asked("one", 2, 100),
        asked("whole-again", 3, 5, gpus=8),
        asked("two", 103, 1, gpus=2),
    ]
    cluster.play(comes, until_s=150)
    # The single GPU was taken at once, so that the node was empty only when that pod ended.
    assert cluster.waits_s == {
        "no GPU": [],
        "part of a GPU": [0],
        "one GPU": [0],
        "2 or 4 GPUs": [9],
        "8 GPUs": [101, 104],
    }


def test_request_that_still_waits_counts_until_the_end_and_early_ones_do_not() -> None:
    ledger = judge().Ledger([NODE])
    cluster = Cluster(ledger, FirstFit(ledger), counted_from_s=1)
    cluster.play([asked("early", 0, 100), asked("whole", 1, 5, gpus=8)], until_s=50)
    assert cluster.waits_s["8 GPUs"] == [49]
    assert cluster.waits_s["one GPU"] == []

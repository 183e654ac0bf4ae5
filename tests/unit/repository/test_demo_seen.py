"""The demo judges itself, so each of its promises must be able to fail."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import pytest

from demo import seen
from demo.arbiter import Arbiter
from demo.containerd import Container
from demo.report import Report
from demo.seen import Promise

MIB = 1 << 20

AS_PROMISED: dict[str, list[dict[str, Any]]] = {
    "gpustat": [{"index": index, "memory.used": 4309, "memory.total": 4309} for index in range(2)],
    "cuda": [
        {
            "device_total_bytes": 4309 * MIB,
            "total_bytes": 4309 * MIB,
            "free_bytes": 4109 * MIB,
            "taken_bytes": 4096 * MIB,
            "one_byte_more": 2,
        }
        for _ in range(2)
    ],
    "cards": [{"index": index, "memory_mib": 4309, "used_bytes": 4309 * MIB} for index in range(2)],
}

Views = dict[str, list[dict[str, Any]]]


class FakeContainer:
    name = "c"

    def __init__(self, views: Views) -> None:
        self._views = views

    def report(self) -> list[dict[str, Any]]:
        return self._views["cuda"]

    def execute(self, *command: str) -> str:
        return json.dumps({"gpus": self._views["gpustat"]}) if "--json" in command else "shown"


class FakeArbiter:
    def __init__(self, views: Views) -> None:
        self._views = views

    def mgpu(self, *_: str) -> str:
        return "shown"

    def objects(self, _: str) -> list[dict[str, Any]]:
        return [{"container_id": "c", "cards": self._views["cards"]}]


def faults(views: Views) -> int:
    report = Report()
    container = cast("Container", FakeContainer(views))
    seen.granted(report, cast("Arbiter", FakeArbiter(views)), container, Promise(cards=2, memory_mib=4309))
    assert report.checks == 9
    return report.faults


def test_demo_without_faults_passes() -> None:
    assert faults(AS_PROMISED) == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda views: views["gpustat"].pop(),
        lambda views: views["cuda"].pop(),
        lambda views: views["cards"].clear(),
        lambda views: views["gpustat"][1].update({"memory.total": 16160}),
        lambda views: views["cuda"][0].update(total_bytes=16160 * MIB),
        lambda views: views["cuda"][0].update(device_total_bytes=4309 * MIB - 1),
        lambda views: views["cuda"][1].update(one_byte_more=0),
        lambda views: views["cuda"][1].update(taken_bytes=4060 * MIB),
        lambda views: views["cards"][1].update(used_bytes=4309 * MIB + 1),
    ],
)
def test_each_promise_can_fail(spoil: Callable[[Views], object]) -> None:
    views = deepcopy(AS_PROMISED)
    spoil(views)
    assert faults(views) >= 1


@pytest.mark.parametrize("broken", [0, 1])
def test_end_before_the_end_is_no_broken_promise(capsys: pytest.CaptureFixture[str], broken: int) -> None:
    report = Report()
    report.check("cards", 2, 2 - broken)
    report.stopped("interrupted")
    assert report.conclude(3.2) == 1
    said = capsys.readouterr().out
    assert "Stopped after 3 s: interrupted" in said
    assert ("broken" in said) == bool(broken)
    assert "held" not in said


def test_broken_promise_says_what_was_promised_and_seen(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    report.check("GPUs", 2, 1)
    report.check("the container was not started", True, False)
    assert report.conclude(1) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "  FAIL GPUs: promised 2, seen 1",
        "  FAIL the container was not started",
    ]

"""Alerts for Prometheus, as promtool judges them: what each is for raises it, and a well node none."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import attempt, run
from tests.support.places import REPOSITORY
from tests.unit.metrics_support import METRIC, exported_labels

RULES = REPOSITORY / "cluster" / "manifests" / "chart" / "grafana" / "alerts.yaml"
NODE = 'instance="n",job="mgpu"'
STEADY = "0x60"
WELL = {
    f"up{{{NODE}}}": "1x60",
    f"mgpu_driver_up{{{NODE}}}": "1x60",
    f'mgpu_start_need{{{NODE},need="holder"}}': "1x60",
    # One engine of several.
    f'mgpu_start_need{{{NODE},need="engine"}}': STEADY,
    f'mgpu_thread_stuck_seconds{{{NODE},thread="scheduler"}}': STEADY,
    f'mgpu_card_lost{{{NODE},card="0",uuid="GPU-0"}}': STEADY,
    f'mgpu_container_lost_listener{{{NODE},container_id="c",namespace="a",pod="p",container="main"}}': STEADY,
    f'mgpu_audit_mismatches_total{{{NODE},card="0"}}': STEADY,
    # One upgrade.
    f"mgpu_generation{{{NODE}}}": "1x20 2x38",
    f'mgpu_recovered{{{NODE},what="failed"}}': STEADY,
    f"mgpu_suspend_failures_total{{{NODE}}}": STEADY,
    f'mgpu_preemption_latency_seconds_bucket{{{NODE},le="0.001"}}': "0+60x60",
    f'mgpu_preemption_latency_seconds_bucket{{{NODE},le="0.01"}}': "0+60x60",
    f'mgpu_preemption_latency_seconds_bucket{{{NODE},le="+Inf"}}': "0+60x60",
    f"mgpu_scheduler_realtime{{{NODE}}}": "1x60",
    f'mgpu_memory_moves_total{{{NODE},what="failed"}}': STEADY,
    f"mgpu_log_lines_left_out_total{{{NODE}}}": STEADY,
}
# What changes on the node for each alert, a value for each minute.
ILL = {
    "MgpuDown": {"up": "0x60"},
    "MgpuDriverDown": {"mgpu_driver_up": "0x60"},
    "MgpuNothingStarts": {'mgpu_start_need{instance="n",job="mgpu",need="holder"}': "0x60"},
    "MgpuThreadStuck": {"mgpu_thread_stuck_seconds": "0+60x60"},
    "MgpuGpuLost": {"mgpu_card_lost": "1x60"},
    "MgpuContainerLostListener": {"mgpu_container_lost_listener": "1x60"},
    "MgpuContainerPastItsCap": {"mgpu_audit_mismatches_total": "0x55 1x4"},
    "MgpuRestarts": {"mgpu_generation": "0+1x60"},
    "MgpuNotTakenOver": {"mgpu_recovered": "1x60"},
    "MgpuSuspendFailures": {"mgpu_suspend_failures_total": "0+1x60"},
    "MgpuPreemptionSlow": {
        'mgpu_preemption_latency_seconds_bucket{instance="n",job="mgpu",le="0.001"}': "0+10x60"
    },
    "MgpuSchedulerNotRealtime": {"mgpu_scheduler_realtime": "0x60"},
    "MgpuMemoryMovesFail": {"mgpu_memory_moves_total": "0+1x60"},
    "MgpuLogTooFast": {"mgpu_log_lines_left_out_total": "0+100x60"},
}


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def firing(folder: Path, changed: dict[str, str]) -> set[str]:
    """The alerts that fire after an hour: promtool is told to expect none, and names those that do."""
    series = [
        {"series": name, "values": changed.get(name, changed.get(name.partition("{")[0], values))}
        for name, values in WELL.items()
    ]
    none = [{"eval_time": "59m", "alertname": name, "exp_alerts": []} for name in ILL]
    test = {"interval": "1m", "input_series": series, "alert_rule_test": none}
    path = folder / "test.json"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    done = attempt("promtool", "test", "rules", path)
    found = set(re.findall(r"alertname: ?(\w+),", done.out + done.err))
    assert bool(done.status) == bool(found), str(done)
    return found


def test_rules_are_prometheus_own(rules: list[dict[str, Any]]) -> None:
    run("promtool", "check", "rules", RULES)
    assert {rule["alert"] for rule in rules} == ILL.keys()
    assert all(rule["labels"]["severity"] in ("critical", "warning", "info") for rule in rules)
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in rules)


def test_rules_ask_for_what_there_is(rules: list[dict[str, Any]]) -> None:
    there = exported_labels().keys()
    for rule in rules:
        assert set(METRIC.findall(rule["expr"])) <= there, rule["alert"]


def test_no_alert_is_raised_for_a_node_that_is_well(tmp_path: Path) -> None:
    assert firing(tmp_path, {}) == set()


@pytest.mark.parametrize("alert", ILL)
def test_alert_is_raised_by_what_it_is_for(tmp_path: Path, alert: str) -> None:
    assert firing(tmp_path, ILL[alert]) == {alert}

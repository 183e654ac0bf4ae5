"""What shares and whole GPUs may do is what the rows of native_sched/nvidia/rm/interface.def say."""

import json

import pytest
from click.testing import CliRunner

from mgpu_cli import render
from mgpu_cli.main import main
from oci_specs.features import FEATURES, HOW, NOT_ADMINISTRATORS_ALONE, Feature
from tools.abi import coverage, interface, store


def told(*words: str) -> str:
    done = CliRunner().invoke(main, ["explain", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("feature", FEATURES, ids=lambda each: each.name)
def test_feature_is_served_as_the_rows_are(feature: Feature) -> None:
    rows = {row.base: row for row in interface.read().rows}
    asked = [rows.get(symbol) for symbol in feature.asks]
    refused = [row is None or row.is_refused for row in asked]
    assert feature.whole == (not any(refused))
    assert feature.share == (not any(refused) and not any(row and row.whole for row in asked))
    assert {row.capability for row in asked if row} <= {feature.capability}
    assert set(feature.asks) <= rows.keys() | {
        call.symbol for call in coverage.calls(interface.read(), store.load())
    }


def test_all_are_listed_and_one_is_explained() -> None:
    listed = told()
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [each.name for each in FEATURES]
    assert told("counters").splitlines() == [
        "counters: CUPTI's metrics, Nsight Compute",
        f"a share: no: they show the whole GPU; {HOW}",
        f"whole GPUs: yes: {NOT_ADMINISTRATORS_ALONE}",
    ]
    assert [each["name"] for each in json.loads(told("peers", "-o", "json"))] == ["peers"]


def test_unknown_feature_is_refused_with_those_that_are_known() -> None:
    done = CliRunner().invoke(main, ["explain", "raytracing"])
    assert done.exit_code != 0
    assert done.output.startswith(
        'mgpu: "raytracing" is no feature that is known; features: tracing, counters,'
    )


def test_describe_says_what_a_container_lacks_and_what_it_takes() -> None:
    card = [{"index": 0}]
    assert list(render._grant({"whole": True, "cards": card})) == [
        ("GPUs:", "whole, to it alone: tracing, counters, hmm, gpudirect, debugger, mps")
    ]
    assert list(render._grant({"whole": True, "cards": card, "capabilities": ["utility", "video"]})) == [
        ("Driver:", "utility, video"),
        ("GPUs:", "whole, to it alone: tracing, counters, hmm, gpudirect, video, debugger, mps"),
    ]
    assert list(render._grant({"whole": False, "cards": card})) == [
        ("GPUs:", f"shared: tracing; for counters, hmm, gpudirect, debugger, mps {HOW}")
    ]
    assert list(render._grant({"whole": False, "cards": card, "capabilities": ["video"]})) == [
        ("Driver:", "video"),
        ("GPUs:", f"shared: tracing, video; for counters, hmm, gpudirect, debugger, mps {HOW}"),
    ]
    assert list(render._grant({"whole": True, "cards": [*card, {"index": 1}]})) == [
        ("GPUs:", "whole, to it alone: tracing, counters, hmm, peers, gpudirect, debugger, mps")
    ]
    assert list(render._grant({"whole": False, "cards": []})) == []
    assert list(render._grant({"cards": card})) == [], "an older mgpud does not say"

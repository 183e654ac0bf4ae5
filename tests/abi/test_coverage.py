"""docs/coverage.md: it is what the rows and the facts say, and every refusal has a reason."""

import functools

import pytest

from tools.abi import coverage, interface, store
from tools.abi.coverage import ANSWERED, REFUSED, SERVED, WHOLE, Call


@functools.cache
def calls() -> dict[tuple[str, str], Call]:
    found = coverage.calls(interface.read(), store.load())
    return {(call.kind, call.symbol): call for call in found}


def test_page_is_what_rows_and_facts_say() -> None:
    expected = coverage.page(interface.read(), store.load())
    assert coverage.PAGE.read_text() == expected, "write it anew: python -m tools.abi coverage"


def test_every_refusal_has_a_reason_and_no_reason_is_left_over() -> None:
    assert coverage.amiss(list(calls().values()), coverage.reasons()) == []


def test_every_kind_and_branch_of_nvproxy_is_there() -> None:
    for kind in coverage.KINDS:
        for branch in coverage.BRANCHES:
            assert any(call.kind == kind and call.outcomes[branch] for call in calls().values())
    assert len(calls()) > 350


@pytest.mark.parametrize(
    ("kind", "symbol", "outcome"),
    [
        ("escape", "NV_ESC_RM_ALLOC", SERVED),
        ("escape", "NV_ESC_RM_IDLE_CHANNELS", SERVED),
        ("uvm", "UVM_MAP_EXTERNAL_ALLOCATION", SERVED),
        ("class", "NV01_MEMORY_LOCAL_USER", SERVED),
        ("class", "NV_MEMORY_FABRIC", REFUSED),
        ("control", "NV2080_CTRL_CMD_FB_GET_INFO_V2", ANSWERED),
        ("control", "NV2080_CTRL_CMD_GPU_GET_NAME_STRING", SERVED),
        ("control", "NV906F_CTRL_CMD_RESET_CHANNEL", REFUSED),
        ("control", "NV2080_CTRL_CMD_FB_GET_INFO", ANSWERED),
        ("control", "NVB0CC_CTRL_CMD_EXEC_REG_OPS", WHOLE),
        ("control", "NV2080_CTRL_CMD_GPU_EXEC_REG_OPS", REFUSED),
        ("class", "GF100_PROFILER", SERVED),
    ],
)
def test_coverage_shows_the_outcome_of_a_call(kind: str, symbol: str, outcome: str) -> None:
    assert set(calls()[kind, symbol].outcomes.values()) - {coverage.ABSENT} == {outcome}


def test_refusal_without_a_reason_is_seen() -> None:
    table = [row for row in coverage.reasons() if row[1] != "NV50_P2P"]
    assert coverage.amiss(list(calls().values()), table) == ["class NV50_P2P: refused without a reason"]


def test_reason_for_nothing_is_seen() -> None:
    table = [*coverage.reasons(), ("class", "NV01_ROOT", "nobody needs it")]
    said = coverage.amiss(list(calls().values()), table)
    assert said == ["class NV01_ROOT: a reason, and nothing like it is refused"]

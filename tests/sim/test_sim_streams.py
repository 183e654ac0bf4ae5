"""What programs submit: streams, kernels, events, copies and graphs on the channels of a simulated card."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oci_specs import paths
from tests.sim.conftest import Run
from tests.support.commands import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a mount namespace with device nodes")
HERE = Path(__file__).parent
# A command costs the card's front end about a microsecond; another group's turn a switch.
EXACT_MS, SWITCHED_MS = 0.1, 2.0
INVALID_VALUE, INVALID_IMAGE, INVALID_CONTEXT, INVALID_HANDLE = 1, 200, 201, 400
NOT_FOUND, NOT_READY = 500, 600

Case = Callable[..., Any]


@pytest.fixture
def case(run: Run) -> Case:
    return lambda name, **environment: json.loads(
        run([sys.executable, str(HERE / "stream_cases.py"), name], **environment)
    )


def test_time_between_events_is_what_the_kernels_take(case: Case) -> None:
    seen = case("durations")
    assert seen["first"] == pytest.approx([2.0, 3.5, 0.25], abs=EXACT_MS)
    assert seen["queried"] == NOT_READY
    assert 30.0 <= min(seen["many"]) < 300.0
    assert seen["after"] == 0


def test_kernels_that_are_not_told_how_long_they_take(case: Case) -> None:
    assert case("plain_kernels") == pytest.approx([0.1, 4.0], abs=EXACT_MS)
    assert case("plain_kernels", MGPU_SIM_KERNEL_US="2000") == pytest.approx([20.0, 4.0], abs=EXACT_MS)


def test_full_ring_holds_up_its_stream_alone(case: Case) -> None:
    seen = case("full_ring")
    assert seen["queued"] < 0.9
    assert 1 <= seen["full"] < 3
    assert seen["elsewhere"] < 0.7


def test_order_between_streams(case: Case) -> None:
    seen = case("streams")
    assert seen["by_event"] == pytest.approx(1.0, abs=EXACT_MS)
    assert seen["first_to_legacy"] >= 1.0
    assert seen["legacy_to_second"] >= 1.0
    assert seen["unordered_before_legacy"] > 0
    assert seen["busy"] == NOT_READY


def test_streams_may_outnumber_channels(case: Case) -> None:
    shortest, streams = case("many_streams")
    assert shortest >= 0.2
    assert streams == 20


def test_event_recorded_anew(case: Case) -> None:
    assert case("events_again") == {
        "unrecorded": [0, 0],
        "states": [0, NOT_READY],
        "destroyed": INVALID_HANDLE,
    }


def test_events_between_contexts_and_cards(case: Case) -> None:
    seen = case("contexts")
    assert seen["foreign"] == [INVALID_HANDLE]
    assert all(1.0 <= after < 1.0 + SWITCHED_MS for after in seen["after"])


def test_graphs(case: Case) -> None:
    seen = case("graphs")
    assert seen["lengths"][0] == pytest.approx(20.0, rel=0.05)
    assert 40.0 <= seen["lengths"][1] < 400.0, "the quickest of three"
    assert seen["gone"] == INVALID_VALUE


def test_copies(case: Case) -> None:
    seen = case("copies")
    assert seen["alone"] > 5.0
    assert seen["beside"] == pytest.approx(20.0, abs=SWITCHED_MS)
    assert seen["in_order"] == pytest.approx(10.0 + seen["alone"], abs=SWITCHED_MS)
    assert seen["synchronous"] >= seen["alone"] - EXACT_MS
    # 898 GB/s: written once, and half of it read and written.
    assert seen["on_card"] == pytest.approx([0.301, 0.301], abs=EXACT_MS)
    assert seen["outside"] == INVALID_VALUE


def test_mistakes_are_errors(case: Case) -> None:
    assert case("mistakes") == {
        "unknown_function": NOT_FOUND,
        "no_image": INVALID_IMAGE,
        "unrecorded": INVALID_HANDLE,
        "untimed": INVALID_HANDLE,
        "no_threads": INVALID_VALUE,
        "too_many_threads": INVALID_VALUE,
        "no_duration": INVALID_VALUE,
        "legacy_destroyed": INVALID_HANDLE,
        "stale_stream": INVALID_HANDLE,
        "stale_function": INVALID_HANDLE,
        "stale_event": INVALID_HANDLE,
        "no_context": INVALID_CONTEXT,
    }


def test_attributes(case: Case) -> None:
    assert case("attributes") == [True, 1, True, 1024]


def test_threads_own_default_stream(case: Case) -> None:
    assert case("per_thread") == {"busy": [NOT_READY], "idle": 0, "found": True}


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def storm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """stream_storm.c with the library inside it, both built with sanitizers."""
    repository = HERE.parents[1]
    program = tmp_path_factory.mktemp("storm") / "storm"
    sources = [
        HERE / "stream_storm.c",
        *sorted((repository / "sim/libcuda").glob("*.c")),
        *sorted((repository / "sim/rmclient").glob("*.c")),
        repository / "sim/card/profiles.c",
        repository / "native_sched/nvidia/rm/table.c",
    ]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-pthread", "-g", "-O1", "-fno-sanitize-recover=all"]
    subprocess.run(["cc", *flags, f"-fsanitize={request.param}", *sources, "-o", program], check=True)
    return os.fspath(program)


def test_storm_of_threads(run: Run, storm: str) -> None:
    """Eight threads on shared and own streams of three contexts, some of which end under them."""
    assert run([storm]) == "ok\n"


def test_every_function_found_by_name_is_exported() -> None:
    """An application may look a function up in either way."""
    table = (HERE.parents[1] / "sim/libcuda/entry.c").read_text(encoding="utf-8")
    symbols = run("objdump", "-T", paths.lib("sim/libcuda.so.1")).split()
    rows = [line.strip(" {},").split(", ") for line in table.splitlines() if line.startswith('    {"cu')]
    assert len(rows) > 100
    for _, _, *functions in rows:
        assert {function for function in functions if function != "NULL"} <= set(symbols)

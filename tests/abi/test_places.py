"""What the mediator and the driver's part find by a version's sizes: statuses, runlists, samples of
utilisation.
"""

import functools
import re

import pytest

from tools.abi import compiler, interface, parity, store
from tools.abi.interface import HEADERS
from tools.abi.release import NONE, WHOLE, Release
from tools.abi.tables import REPOSITORY

RUNLISTS = "NV2080_CTRL_CMD_GPU_GET_ENGINE_RUNLIST_PRI_BASE"
SAMPLES = "NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2"
WORD = 4


@functools.cache
def served() -> list[Release]:
    return parity.served(interface.read(), store.load())


def constant(name: str) -> int:
    headers = [path.as_posix() for path in HEADERS]
    (value,) = compiler.evaluate(headers, [REPOSITORY], [name], "our headers")
    assert value is not None, name
    return value


@pytest.mark.parametrize(
    ("from_end", "commands"),
    [
        (
            "UVM_STATUS_FROM_END",
            ("UVM_INITIALIZE", "UVM_FREE", "UVM_UNMAP_EXTERNAL", "UVM_REGISTER_CHANNEL"),
        ),
        ("UVM_MAP_EXTERNAL_STATUS_FROM_END", ("UVM_MAP_EXTERNAL_ALLOCATION",)),
    ],
)
def test_status_of_a_uvm_command_is_as_far_from_the_end(from_end: str, commands: tuple[str, ...]) -> None:
    distance, compared = constant(from_end), 0
    for release in served():
        for command in commands:
            place = release.facts["field"].get((f"{command}_PARAMS", "rmStatus"))
            if place is not None:
                whole = int(release.facts["uvm"][(command,)][2])
                assert int(place[0], 16) == whole - distance, f"{command} in {release.version}"
                compared += 1
    assert compared >= len(commands) * len([release for release in served() if release.complete])


def test_every_drivers_runlists_have_a_shape() -> None:
    """The driver takes one size alone, and the shape is found by trying."""
    header = next(path for path in HEADERS if path.name == "arbiter_abi.h").read_text()
    table = header[header.index("rm_runlist_shapes[] = {") :].split("};")[0]
    shapes = re.findall(r"\{(\w+), (\w+)\},", table)
    sizes = [_number(engines) * _number(lists) * WORD for engines, lists in shapes]
    said = {release.facts["control"].get((RUNLISTS,), (NONE, NONE, NONE))[2] for release in served()}
    assert {int(size) for size in said - {NONE}} <= set(sizes)
    assert len(sizes) == len(set(sizes)), "two shapes of one size cannot be told apart"


def _number(text: str) -> int:
    return int(text, 0) if text[0].isdigit() else constant(text)


def test_samples_of_utilisation_fill_the_ring_and_engines_the_samples() -> None:
    begin, samples = constant("RM_PERFMON_ENGINES_AT"), constant("RM_PERFMON_SAMPLES")
    head = constant("sizeof(struct rm_perfmon_head)")
    table = interface.read()
    for release in served():
        sample, engine = (
            table.size(f"RM_BYTES_NV2080_CTRL_PERF_GPUMON_{name}_UTIL_SAMPLE", release.version)
            for name in ("PERFMON", "ENGINE")
        )
        assert sample is not None
        assert engine is not None
        assert (sample - begin) % engine == 0
        ring = release.facts["control"].get((SAMPLES,), (NONE, NONE, NONE))[2]
        assert ring in (NONE, str(head + samples * sample)), release.version
        known = release.facts["field"].get(("NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE", WHOLE))
        assert known is None or int(known[1]) == engine

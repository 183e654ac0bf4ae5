"""What mgpu ps and describe make of what containerd tells, and of a pause."""

from typing import Any

import pytest

from mgpu_cli import render
from oci_specs import schemas
from tests.unit.cli_support import container, list_reply, sched

TOLD = {
    "address": "/run/containerd/containerd.sock",
    "namespace": "default",
    "name": "default/web-1",
    "runtime": "io.containerd.runc.v2",
    "task": "running",
    "oom_kills": 0,
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"containerd": TOLD}, "default/web-1"),
        ({"containerd": TOLD | {"name": None}}, ""),
        ({"containerd": TOLD | {"name": "a\x1b[2Jb"}}, "a\\x1b[2Jb"),
        ({"containerd": TOLD, "namespace": "n", "pod": "p", "container": "c"}, "n/p/c"),
    ],
)
def test_containerds_name_is_shown_without_annotations(changed: dict[str, Any], said: str) -> None:
    assert render.name(container(**changed)) == said


@pytest.mark.parametrize(
    ("paused", "advisory", "said"),
    [
        (False, False, "bound"),
        (True, False, "bound, paused"),
        (False, True, "bound, advisory"),
        (True, True, "bound, paused, advisory"),
    ],
)
def test_state(paused: bool, advisory: bool, said: str) -> None:
    assert render.state(container(paused=paused, advisory=advisory)) == said


def test_describe(capsys: pytest.CaptureFixture[str]) -> None:
    off = sched(enabled=False, busy=True, why="paused")
    render.container(container(containerd=TOLD | {"oom_kills": 2}, paused=True, sched=off))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "State: bound, paused" in lines
    assert "Activity: suspended (paused)" in lines
    told = "task running, namespace default, io.containerd.runc.v2, out of host memory 2 times"
    assert f"Containerd: {told}" in lines


def test_name_from_containerd_passes_the_schema() -> None:
    reply = list_reply([container(containerd=TOLD, paused=True, sched=sched(why="paused"))], [])
    schemas.validate("control#list-reply", reply)

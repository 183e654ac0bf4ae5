"""docs/commands.md: its commands, run in order as they stand there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import arbiter
from tests.support.commands import attempt
from tests.support.console import Step, matches, steps
from tests.support.dockerd import Dockerd, client
from tests.support.places import MGPU, REPOSITORY

STEPS = steps((REPOSITORY / "docs" / "commands.md").read_text())


@pytest.fixture(scope="module")
def operators_machine(
    docker_daemon: Dockerd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, str], Path]]:
    """The environment and the folder of an operator with mgpu up."""
    with arbiter.running() as mgpu:
        docker_daemon.point_at(mgpu.runtime)
        path = f"{MGPU.parent}:{Path(client()).parent}:{os.environ['PATH']}"
        yield (
            {**docker_daemon.env, "PATH": path, "MGPU_ROOT": str(mgpu.root)},
            tmp_path_factory.mktemp("page"),
        )


def test_commands_page_has_steps_to_run() -> None:
    assert {tuple(step.command.split()[:2]) for step in STEPS} >= {
        ("mgpu", name) for name in ("ps", "top", "timeline", "set", "policy")
    }


@pytest.mark.parametrize("step", STEPS, ids=[step.command[:40] for step in STEPS])
def test_prints_what_it_says(operators_machine: tuple[dict[str, str], Path], step: Step) -> None:
    env, folder = operators_machine
    done = attempt("sh", "-c", step.command, env=env, cwd=folder)
    printed = done.out + done.err
    assert matches(step.output, printed), f"the page shows\n{step.output}\nand it prints\n{printed}"

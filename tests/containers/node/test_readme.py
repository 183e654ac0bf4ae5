"""The README's commands, run as they stand there, one after the other."""

from collections.abc import Iterator

import pytest

from tests.support import reader
from tests.support.commands import attempt
from tests.support.console import Step, matches, steps
from tests.support.containerd import Containerd
from tests.support.dockerd import Dockerd
from tests.support.places import REPOSITORY

README = REPOSITORY / "README.md"
STEPS = steps(README.read_text())


@pytest.fixture(scope="module")
def readers_machine(docker_daemon: Dockerd, ctd: Containerd) -> Iterator[dict[str, str]]:
    """Of one who has done what stands above the first step."""
    with reader.machine(docker_daemon, ctd) as env:
        yield env


def test_readme_has_steps_to_run() -> None:
    assert {step.command.split()[0] for step in STEPS} >= {"docker", "ctr", "mgpu"}
    assert [step.command.split()[1] for step in STEPS if "install" in step.command] == [
        "install",
        "uninstall",
    ]


@pytest.mark.parametrize("step", STEPS, ids=[step.command[:40] for step in STEPS])
def test_prints_what_it_says(readers_machine: dict[str, str], step: Step) -> None:
    done = attempt("sh", "-c", step.command, env=readers_machine, cwd=REPOSITORY)
    printed = done.out + done.err
    assert matches(step.output, printed), f"the README shows\n{step.output}\nand it prints\n{printed}"

"""The README's commands, run as they stand there, one after the other.

Plain docker and ctr find the tests' own engines by variables, and mgpu install finds dockerd's configuration
at its usual place.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import arbiter, host
from tests.support.commands import attempt, run
from tests.support.console import Step, matches, steps
from tests.support.containerd import Containerd
from tests.support.dockerd import RUNTIME, Dockerd, client
from tests.support.places import MGPU, REPOSITORY
from tests.support.waiting import until

README = REPOSITORY / "README.md"
ROOT = Path("/run/mgpu")
SYSTEMD_RUNS = Path("/run/systemd/system")
STEPS = steps(README.read_text())


@pytest.fixture(scope="module")
def readers_machine(docker_daemon: Dockerd, ctd: Containerd) -> Iterator[dict[str, str]]:
    """The environment of a reader who has done what stands above the first step: mgpu up, where it goes by
    itself.
    """
    config = Path("/etc/docker/daemon.json")
    own = docker_daemon.home / "daemon.json"
    before = own.read_bytes()
    with (
        host.own(Path("/etc"), Path("/usr/local/bin")),
        host.home("sys") as programs,
        arbiter.running(root=ROOT),
    ):
        config.parent.mkdir(exist_ok=True)
        config.unlink(missing_ok=True)
        config.symlink_to(own)
        # Restarts nothing: dockerd is told by a signal, and the containerd of the tests finds the shim as it
        # is.
        SYSTEMD_RUNS.mkdir(parents=True)
        (programs / "systemctl").symlink_to("/bin/true")
        # The docker that belongs to the daemon comes first, whatever else the machine has.
        path = f"{MGPU.parent}:{programs}:{Path(client()).parent}:{os.environ['PATH']}"
        env = {**docker_daemon.env, **ctd.env, "PATH": path}
        yield env
        if own.read_bytes() != before:
            # Only some of the steps were run.
            run(MGPU, "uninstall", "docker", "containerd", "--restart", env=env)
        SYSTEMD_RUNS.rmdir()
    assert own.read_bytes() == before
    # It reads its file some time after the signal.
    link = str(docker_daemon.runtime_link)
    until(
        lambda: docker_daemon.runtimes()[RUNTIME]["path"] == link, "dockerd has forgotten the installed mgpu"
    )


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

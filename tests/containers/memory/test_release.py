"""Whatever way a container ends or fails to start, its memory, grant and reservation come back."""

import os
import signal
import uuid
from collections.abc import Iterator

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.lasting import lasting_mgpu
from tests.support.places import IMAGE_NAME
from tests.support.programs import Programs, inside
from tests.support.waiting import prompt, took_s, until

MIB = 1 << 20
ENV = {"MGPU_MEMORY_MIB": "1024"}


@pytest.fixture(scope="module", params=["runc", "crun"])
def below(request: pytest.FixtureRequest, private_host: None) -> Iterator[Arbiter]:
    with arbiter.running(runtime=request.param) as running:
        yield running


lasting, mgpu = lasting_mgpu()


def test_kill_9_gives_everything_back_within_a_second(below: Arbiter, built: Programs) -> None:
    def killed() -> float:
        with built.bundle("hold", "500", env=ENV) as made, made.running(below.runtime) as running:
            assert running.line() == "held 0"
            [container] = below.containers()
            assert (container["state"], container["cards"][0]["used_bytes"]) == ("bound", 700 * MIB)
            os.kill(container["pid"], signal.SIGKILL)
            return took_s(lambda: arbiter.until_empty(below))

    prompt(killed, "until everything is back")


def test_docker_rm_force(docker: Dockerd, mgpu: Arbiter, built: Programs) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    docker.docker(
        *["run", "--detach", "--name", name, "--network=none", f"--runtime={RUNTIME}", *built.docker_mount],
        *["--env", "MGPU_MEMORY_MIB=1024", IMAGE_NAME, inside("hold"), "500", "3"],
    )
    until(lambda: docker.docker("logs", name).count("held") == 3, "three processes hold or were refused")
    assert mgpu.containers()[0]["cards"][0]["used_bytes"] > 0
    docker.docker("rm", "--force", name)
    arbiter.until_empty(mgpu)


def no_such_program(made: Bundle) -> None:
    made.edit(lambda config: config["process"].update(args=["/no/such/program"]))


def no_such_mount(made: Bundle) -> None:
    made.edit(
        lambda config: config["mounts"].append(
            {"destination": "/x", "type": "bind", "source": "/no/such/folder", "options": ["bind"]}
        )
    )


def failing_hook(made: Bundle) -> None:
    made.edit(lambda config: config.update(hooks={"createRuntime": [{"path": "/bin/false"}]}))


@pytest.mark.parametrize("spoil", [no_such_program, no_such_mount, failing_hook])
def test_start_that_fails_after_admission(below: Arbiter, spoil: object) -> None:
    with bundle("true", env=ENV) as made:
        assert callable(spoil)
        spoil(made)
        done = made.run(below.runtime)
        assert done.status != 0
        assert (made.path / ".mgpu-config.json").exists(), f"it failed before it was admitted: {done}"
        arbiter.until_empty(below)


def test_runtime_killed_between_admission_and_bind(mgpu: Arbiter) -> None:
    """The lease is tied to the process that was admitted: when it dies, nothing waits for the time to run
    out."""
    pid = os.fork()
    if pid == 0:
        try:
            mgpu.ask(
                "admit",
                container_id="never",
                bundle="/tmp",
                rootfs="/tmp",
                annotations={},
                env=ENV,
                reach=[],
                seccomp_listener=None,
            )
            signal.pause()
        finally:
            os._exit(1)
    until(lambda: [c["state"] for c in mgpu.containers()] == ["admitted"], "it is admitted")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    until(lambda: mgpu.containers() == [], "the reservation is back")

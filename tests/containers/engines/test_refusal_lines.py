"""Every refusal reaches the user of ctr and docker word for word, and leaves nothing behind."""

import os
import uuid

import pytest

from runtime_hook import handing_on
from tests.refusals import NODE_REFUSALS, REFUSALS, RefusalCase
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.commands import attempt, run
from tests.support.containerd import Containerd
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.lasting import shared_mgpu
from tests.support.places import IMAGE_NAME
from tests.support.seccomp_profiles import COMMON

CASES = [*REFUSALS, *NODE_REFUSALS]


shared = shared_mgpu()


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_ctr(ctd: Containerd, shared: Arbiter, case: RefusalCase) -> None:
    name = new_name()
    argv = ctd.run_argv(
        name, "true", runtime=shared.runtime, annotations=case.annotations, env=case.env, options=["--rm"]
    )
    done = attempt(*argv)
    assert done.status != 0
    assert case.line in done.err
    assert len([line for line in done.err.splitlines() if "mgpu:" in line]) == 1, done.err
    assert shared.containers() == []


@pytest.mark.parametrize("case", [case for case in CASES if case.can_be_env], ids=lambda case: case.id)
def test_docker(docker_daemon: Dockerd, shared: Arbiter, case: RefusalCase) -> None:
    docker_daemon.point_at(shared.runtime)
    env = [word for key, value in case.env.items() for word in ("--env", f"{key}={value}")]
    done = docker_daemon.try_docker(
        "run", "--rm", "--network=none", f"--runtime={RUNTIME}", *env, IMAGE_NAME, "true"
    )
    assert done.status != 0
    assert case.line in done.err
    assert shared.containers() == []


def test_policy_that_conflicts_names_who_set_it(ctd: Containerd, shared: Arbiter) -> None:
    env = {"MGPU_MEMORY_MIB": "2048", "MGPU_GPUS": "2"}
    with bundle("sh", "-c", "echo up; exec sleep 60", env=env) as made:
        with made.running(shared.runtime) as running:
            assert running.line() == "up"
            policy = {"mgpu.dev/policy": "native-burst-share", "mgpu.dev/memory-mib": "1024"}
            done = attempt(
                *ctd.run_argv(
                    new_name(), "true", runtime=shared.runtime, annotations=policy, options=["--rm"]
                )
            )
            assert done.status != 0
            assert f"{made.container}" in done.err
            assert "fixed-share" in done.err
            made.call(shared.runtime, "kill", made.container, "KILL")


def test_profile_without_what_the_runtime_needs_to_hand_on_the_listener(shared: Arbiter) -> None:
    allowed = {"names": sorted({*COMMON, "clone"} - {"recvfrom"}), "action": "SCMP_ACT_ALLOW"}
    profile = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [allowed]}
    with bundle("true", env={"MGPU_MEMORY_MIB": "1024"}) as made:
        made.edit(lambda config: config["linux"].update(seccomp=profile))
        done = made.run(shared.runtime)
    lines = [line for line in done.err.splitlines() if line.startswith("mgpu: ")]
    if runc_version() >= handing_on.SINCE:
        assert (done.status, len(lines)) == (1, 1), str(done)
        assert "denies recvfrom" in lines[0]
    else:
        assert (done.status, lines) == (0, []), str(done)
    assert shared.containers() == []


def runc_version() -> tuple[int, ...]:
    return tuple(map(int, run("runc", "--version").split()[2].split(".")[:2]))


def test_mgpud_not_running(ctd: Containerd, docker_daemon: Dockerd) -> None:
    with arbiter.running() as gone:
        runtime = gone.root / "bin" / "mgpu-runtime"
        conf = (gone.root / "runtime.conf").read_text()
        script = runtime.read_text()
    runtime.parent.mkdir(parents=True)
    (gone.root / "runtime.conf").write_text(conf)
    runtime.write_text(script)
    os.chmod(runtime, 0o755)
    annotations = {"mgpu.dev/memory-mib": "1024"}
    argv = ctd.run_argv(new_name(), "true", runtime=runtime, annotations=annotations, options=["--rm"])
    done = attempt(*argv)
    line = f"mgpu: mgpud is not running: no answer on {gone.control}"
    assert done.status != 0
    assert line in done.err
    docker_daemon.point_at(runtime)
    done = docker_daemon.try_docker(
        *["run", "--rm", "--network=none", f"--runtime={RUNTIME}", "--env", "MGPU_MEMORY_MIB=1024"],
        *[IMAGE_NAME, "true"],
    )
    assert done.status != 0
    assert line in done.err
    # A container without a GPU needs no mgpud.
    argv = ctd.run_argv(new_name(), "echo", "plain", runtime=runtime, options=["--rm"])
    assert attempt(*argv).out == "plain\n"

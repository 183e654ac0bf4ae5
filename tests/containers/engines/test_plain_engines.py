"""The engines as the other tests use them, on a container that asks for no GPU, through each runtime below
mgpu's.
"""

import uuid
from pathlib import Path

import pytest

from tests.support import host
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.commands import run
from tests.support.containerd import Containerd
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.places import IMAGE_NAME
from tests.support.podman import Podman

SAYS = ("python3", "-c", "print('inside')")


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def test_ctr(ctd: Containerd, mgpu: Arbiter) -> None:
    name = new_name()
    assert run(*ctd.run_argv(name, *SAYS, runtime=mgpu.runtime, options=["--rm"])) == "inside\n"
    assert name not in ctd.containers()


def test_docker(docker: Dockerd) -> None:
    argv = ["run", "--rm", "--network=none", f"--runtime={RUNTIME}", IMAGE_NAME, *SAYS]
    assert docker.docker(*argv) == "inside\n"


def test_podman(pod: Podman, mgpu: Arbiter) -> None:
    said = pod.podman("--runtime", mgpu.runtime, "run", "--rm", *pod.run_options, IMAGE_NAME, *SAYS)
    assert said == "inside\n"


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_runtime_alone(private_host: None, runtime: str) -> None:
    with bundle(*SAYS) as made:
        done = made.run(runtime)
        assert (done.status, done.out) == (0, "inside\n"), str(done)
        assert (done.status, made.path.exists()) == (0, True)
    assert not made.path.exists()


def test_image_rootfs_stays_clean(private_host: None) -> None:
    with bundle("sh", "-c", "touch /left && ls -d /left") as made:
        assert made.run("runc").out == "/left\n"
        rootfs = Path(made.config["root"]["path"])
        assert (rootfs / "left").exists()
    assert host.mounts_below(rootfs) == []

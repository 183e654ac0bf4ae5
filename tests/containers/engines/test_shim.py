"""containerd-shim-mgpu-v2 under a real containerd: upstream's shim in every respect, with mgpu-runtime as its
runc.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from oci_specs import paths
from tests.support import containerd
from tests.support.arbiter import Arbiter
from tests.support.commands import attempt, run
from tests.support.containerd import NO_LIMITS, Containerd
from tests.support.lasting import lasting_mgpu
from tests.support.programs import Programs, inside
from tests.support.started import foreground
from tests.support.waiting import until

SHIM = "containerd-shim-mgpu-v2"
RUNTIME = "io.containerd.mgpu.v2"
MEMORY = {"mgpu.dev/memory-mib": "1024"}


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


lasting, mgpu = lasting_mgpu()


@pytest.fixture(scope="module")
def shimmed(lasting: Arbiter) -> Iterator[Containerd]:
    """A containerd that finds the shim on its PATH, by a script that names these tests' mgpu."""
    folder = lasting.root / "path"
    folder.mkdir()
    (folder / "runc").symlink_to(lasting.runtime)
    script = folder / SHIM
    script.write_text(f"#!{paths.libexec(SHIM)} --mgpu-path={folder}\n")
    script.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    try:
        with containerd.running("shm") as running:
            yield running
    finally:
        os.environ["PATH"] = before


def argv(
    ctd: Containerd, name: str, *command: str, options: list[str], env: dict[str, str]
) -> list[str | Path]:
    annotations = [word for key, value in env.items() for word in ("--annotation", f"{key}={value}")]
    image = "docker.io/library/mgpu-test:latest"
    return ctd.argv("run", *NO_LIMITS, "--runtime", RUNTIME, *options, *annotations, image, name, *command)


def test_granted_container(shimmed: Containerd, mgpu: Arbiter, built: Programs) -> None:
    name = new_name()
    with foreground(
        argv(shimmed, name, inside("hold"), "100", options=["--rm", *built.ctr_mount], env=MEMORY)
    ) as running:
        assert running.line() == "held 0"
        [container] = mgpu.containers()
        assert container["container_id"] == name
        inside_view = ["task", "exec", "--exec-id", "x1", name, "gpustat", "--no-header"]
        assert "1024 MB" in shimmed.ctr(*inside_view)
        shimmed.ctr("task", "pause", name)
        shimmed.ctr("task", "resume", name)
        shimmed.ctr("task", "kill", "--signal", "KILL", name)
        running.process.wait(60)
    until(lambda: mgpu.containers() == [], "its grant is back")


def test_refusal_reaches_ctr_word_for_word(shimmed: Containerd, mgpu: Arbiter) -> None:
    done = attempt(*argv(shimmed, new_name(), "true", options=["--rm"], env={"mgpu.dev/memory-mib": "17"}))
    assert done.status != 0
    assert 'mgpu: mgpu.dev/memory-mib is "17"; allowed: ' in done.err, str(done)
    assert mgpu.containers() == []


def test_container_without_gpu_runs_as_upstreams(shimmed: Containerd) -> None:
    assert run(*argv(shimmed, new_name(), "echo", "plain", options=["--rm"], env={})) == "plain\n"


def test_version_is_upstreams() -> None:
    upstream = attempt("containerd-shim-runc-v2", "-v")
    ours = attempt(paths.libexec(SHIM), "-v")
    assert (ours.status, ours.out.split("\n")[1:]) == (0, upstream.out.split("\n")[1:])


def test_shim_without_our_runc_fails(tmp_path: Path) -> None:
    script = tmp_path / SHIM
    script.write_text(f"#!{paths.libexec(SHIM)} --mgpu-path={tmp_path}\n")
    script.chmod(0o755)
    done = attempt(script, "-v")
    assert done.status == 1
    assert f"mgpu: {tmp_path}/runc" in done.err

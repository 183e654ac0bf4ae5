"""The shim beside upstream's: what stays in memory, and what goes through when containerd starts it."""

import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from oci_specs import paths
from tests.support import cri
from tests.support.arbiter import Arbiter
from tests.support.containerd import NO_LIMITS
from tests.support.cri import OnContainerd, shim_pid
from tests.support.places import IMAGE_NAME
from tests.support.routes import new_name
from tests.support.waiting import until

EACH = 3
# Go's heap differs by this much between two processes of one program.
NOISE_KIB = 1536


def shim_of(stack: ExitStack, kubelet: OnContainerd, runtime: str) -> int:
    """Pid of the shim of a container that is started with `runtime` and asks for a GPU."""
    name = new_name()
    kubelet.containerd.ctr(
        *["run", *NO_LIMITS, "--detach", "--runtime", runtime, "--cgroup", f"/{kubelet.home.name}/{name}"],
        *["--annotation", "mgpu.dev/memory-mib=512", IMAGE_NAME, name, "sleep", "600"],
    )
    stack.callback(kubelet.containerd.remove, name)
    pid = shim_pid(name)
    assert pid is not None
    return pid


def own_kib(pid: int) -> int:
    """Memory that no other process shares."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError(f"/proc/{pid}/status has no RssAnon")


def test_shim_uses_as_much_memory_as_upstreams(kubelet: OnContainerd, mgpu: Arbiter) -> None:
    kubelet.point_at(mgpu.runtime)
    with ExitStack() as stack:
        pids = {
            runtime: [shim_of(stack, kubelet, runtime) for _ in range(EACH)]
            for runtime in (cri.PLAIN_RUNTIME, cri.SHIM_RUNTIME)
        }
        assert len(mgpu.containers()) == EACH
        programs = {os.readlink(f"/proc/{pid}/exe") for of in pids.values() for pid in of}
        assert len(programs) == 1, f"another program than upstream's stays: {programs}"

        def as_small() -> bool:
            plain, ours = (median(map(own_kib, of)) for of in pids.values())
            return ours <= plain + NOISE_KIB

        # The memory of the start itself is given back to the system, some time later.
        time.sleep(1.0)
        until(as_small, "ours are as small as upstream's")


@pytest.mark.parametrize("words", [["-namespace", "n", "-id", "i", "start"], ["-info"], ["delete"]])
def test_arguments_input_and_output_go_through_as_they_are(tmp_path: Path, words: list[str]) -> None:
    """containerd parses what `start` prints, and newer ones write what it is to start to its input."""
    upstream, ours = tmp_path / "containerd-shim-runc-v2", tmp_path / "containerd-shim-mgpu-v2"
    upstream.write_text('#!/bin/sh\nprintf "%s|" "$0" "$@" "$PATH"\ncat\necho oops >&2\nexit 7\n')
    (tmp_path / "mgpu").mkdir()
    (tmp_path / "mgpu" / "runc").write_text("#!/bin/sh\n")
    ours.write_text(f"#!{paths.libexec('containerd-shim-mgpu-v2')} --mgpu-path={tmp_path}/mgpu\n")
    for program in (upstream, ours, tmp_path / "mgpu" / "runc"):
        program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [ours, *words], input=b"\x0a\x00\xff", capture_output=True, env={"PATH": path}, check=False
    )
    told = "".join(f"{word}|" for word in [str(upstream), *words, f"{tmp_path}/mgpu:{path}"])
    assert (done.returncode, done.stdout, done.stderr) == (7, told.encode() + b"\x0a\x00\xff", b"oops\n")

"""mgpu over NVIDIA's driver in the guest, at its usual place, until the guest ends.

libnvidia-ml.so.1 is mgpu's own (sim/libnvml): NVIDIA's is not free, and this one asks the driver by RM's
calls.
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.guest import mortal
from mgpu_cli import runtime_files
from mgpu_cli.state import StateDir
from oci_specs import paths
from oci_specs.refusal import Refusal
from runtime_hook import control

NVML = Path("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
LOG, HOLDER_LOG = Path("/run/mgpud.log"), Path("/run/mgpu-holder.log")
# An emulated processor does in a second what a real one does in a thirtieth of it.
WATCHDOG_MS, READY_S, ANSWER_S = 120_000, 120, 60
NODE = 'containerd = []\ncdi_dirs = []\nhold_ms = 1000\npolicy = "native-burst-share"\n'


def state() -> StateDir:
    return StateDir(Path("/run/mgpu"))


def ask(verb: str, **members: Any) -> dict[str, Any]:
    return control.call(str(state().control), verb, timeout_seconds=ANSWER_S, **members)


def start() -> None:
    """Returns once it answers; does nothing where it does."""
    with suppress(Refusal):
        ask("list")
        return
    NVML.unlink(missing_ok=True)
    NVML.symlink_to(paths.lib("sim/libnvidia-ml.so.1"))
    from native_sched.daemon.node import inventory
    from tests.gpu import cdi

    at = state()
    at.create()
    (at.path / "node.toml").write_text(NODE)
    runtime_files.write(at, "/usr/sbin/runc")
    cdi.write(at.cdi, inventory.nvml()[1])
    words: list[str | Path] = [
        paths.libexec("mgpu-holder"),
        "--seccomp-socket",
        at.seccomp,
        "--mgpud-socket",
        at.holder,
    ]
    words += ["--watchdog-ms", str(WATCHDOG_MS), "--mgpud-log", LOG, "--mgpud-lock", at.mgpud_lock]
    words += ["--standby", "--", "/project/mgpu/bin/mgpud", "--root", at.path, "--driver", "nvidia"]
    LOG.touch()
    mortal.make()
    with HOLDER_LOG.open("wb") as said:
        subprocess.Popen(
            [os.fspath(word) for word in words], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True, env={**os.environ, "LD_PRELOAD": mortal.LIBRARY},
        )  # fmt: skip
    wait()


def wait() -> None:
    """Until mgpud answers."""
    until = time.monotonic() + READY_S
    while True:
        try:
            ask("list")
            return
        except Refusal as refusal:
            if time.monotonic() > until:
                raise SystemExit(f"{refusal.line()}; {LOG.read_text()[-600:]}") from refusal
        time.sleep(0.2)


if __name__ == "__main__":
    start()
    sys.stdout.write("mgpud serves NVIDIA's driver\n")

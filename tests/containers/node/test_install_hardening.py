"""Holder and mgpud with only the capabilities and system calls that their units leave them."""

import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mgpu_cli import runtime_files
from mgpu_cli.state import StateDir
from oci_specs import paths
from runtime_hook import control, holder
from sim import cdi
from tests.support import hardened, host
from tests.support.containerd import Containerd
from tests.support.places import MGPU, REPOSITORY
from tests.support.processes import daemon, kill_left_behind
from tests.support.programs import Programs, inside
from tests.support.started import foreground
from tests.support.waiting import until

UNITS = REPOSITORY / "install" / "units"
MEMORY = {"mgpu.dev/memory-mib": "1024"}
_CAPABILITIES = 64


def start(
    stack: ExitStack,
    state: StateDir,
    name: str,
    *argv: str | Path,
    unit: str | None = None,
    manager: str = "",
) -> int:
    """Run one of mgpu's programs until the stack ends, as `unit` has it; returns its pid once it is ready.

    manager: the socket of a service manager.
    """
    log = state.log / f"{name}.log"
    words = [str(word) for word in argv]
    if unit is not None:
        words = [sys.executable, "-m", "tests.support.hardened", str(UNITS / unit), *words]
    running = daemon(
        words,
        log=log,
        ready=lambda: "ready" in log.read_text().splitlines(),
        env={"PYTHONPATH": os.fspath(REPOSITORY), "NOTIFY_SOCKET": manager},
    )
    return stack.enter_context(running).pid


@pytest.fixture(scope="module")
def manager(private_host: None) -> Iterator[socket.socket]:
    """What systemd listens at for its services' words."""
    with host.home("sdn") as base, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(os.fspath(base / "notify"))
        listening.settimeout(60)
        yield listening


@pytest.fixture(scope="module")
def restricted(manager: socket.socket) -> Iterator[tuple[StateDir, dict[str, int]]]:
    """A mgpu as systemd would run it, and the pids of its programs."""
    with host.home("hrd") as base, ExitStack() as stack:
        state = StateDir(base / "r")
        state.create()
        runtime_files.write(state, "runc")
        stack.callback(kill_left_behind, base)
        sockets: list[str | Path] = ["--seccomp-socket", state.seccomp, "--mgpud-socket", state.holder]
        mgpud = MGPU.with_name("mgpud")
        start(
            stack, state, "simcard", paths.libexec("mgpu-simcard"), "--dir", state.sim, "--cards", "v100-16"
        )
        cdi.write(state.cdi, state.sim / "admin.sock")
        pids = {
            "mgpu-holder.service": start(
                stack, state, "holder", paths.libexec("mgpu-holder"), *sockets, unit="mgpu-holder.service"
            ),
            "mgpud.service": start(
                stack,
                state,
                "mgpud",
                *(mgpud, "--root", state.path),
                *("--driver", "sim"),
                unit="mgpud.service",
                manager=manager.getsockname(),
            ),
        }
        yield state, pids


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("unit", ["mgpu-holder.service", "mgpud.service"])
def test_process_runs_under_its_units_restrictions(
    restricted: tuple[StateDir, dict[str, int]], unit: str
) -> None:
    now = status(restricted[1][unit])
    kept = hardened.settings(UNITS / unit)["CapabilityBoundingSet"].split()
    assert bin(int(now["CapBnd"], 16)).count("1") <= len(kept) < _CAPABILITIES
    assert (now["NoNewPrivs"], now["Seccomp"]) == ("1", "2")


def test_mgpud_reports_serving_then_alive_to_systemd(
    restricted: tuple[StateDir, dict[str, int]], manager: socket.socket
) -> None:
    assert [manager.recv(64) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]


def run_argv(
    ctd: Containerd, built: Programs, state: StateDir, name: str, *command: str
) -> list[str | Path]:
    """Runs one of the test programs with a grant, until it ends."""
    program, *words = command
    return ctd.run_argv(
        name,
        inside(program),
        *words,
        runtime=state.runtime,
        annotations=MEMORY,
        options=["--rm", *built.ctr_mount],
    )


def test_container_is_served(
    restricted: tuple[StateDir, dict[str, int]], ctd: Containerd, built: Programs
) -> None:
    state, _ = restricted
    name = f"t-{uuid.uuid4().hex[:8]}"
    with foreground(run_argv(ctd, built, state, name, "hold", "100")) as running:
        assert running.line() == "held 0"
        [found] = control.call(str(state.control), "list")["containers"]
        assert found["cards"][0]["used_bytes"] > 0
        view = ["task", "exec", "--exec-id", "x1", name, "gpustat", "--no-header"]
        assert "1024 MB" in ctd.ctr(*view)
        ctd.ctr("task", "kill", "--signal", "KILL", name)
        running.process.wait(20)
    assert control.call(str(state.control), "list")["containers"] == []


def test_holder_is_replaced_and_mgpud_taken_over(
    restricted: tuple[StateDir, dict[str, int]], ctd: Containerd, built: Programs
) -> None:
    """What they are left with is enough for that, too: a program tried out, a process killed, locks and
    signals.
    """
    state, pids = restricted
    name = f"t-{uuid.uuid4().hex[:8]}"
    with foreground(run_argv(ctd, built, state, name, "steady", "1")) as running, ExitStack() as stack:
        assert running.line() == "up"
        os.kill(pids["mgpu-holder.service"], signal.SIGHUP)
        until(lambda: holder.status(state.holder).replaced == 1, "the holder is replaced")
        words: list[str | Path] = ["--root", state.path, "--driver", "sim", "--take-over"]
        start(stack, state, "mgpud-next", MGPU.with_name("mgpud"), *words, unit="mgpud.service")
        assert (
            not os.path.exists(f"/proc/{pids['mgpud.service']}")
            or status(pids["mgpud.service"])["State"][0] == "Z"
        )
        for _ in range(2):
            running.tell()
            assert running.line().startswith("calls ")
        ctd.ctr("task", "kill", "--signal", "KILL", name)
        running.process.wait(20)

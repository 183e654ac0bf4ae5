"""Having a running engine take its new configuration."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

from install.engine import Engine, Intent
from oci_specs.refusal import Refusal

SYSTEMD_RUNS = Path("/run/systemd/system")
TIMEOUT_S = 120


def lines(engine: Engine, *, undo: bool) -> tuple[str, ...]:
    """What to type, after installing or after uninstalling."""
    return engine.undo if undo and engine.undo else engine.restart


def restart(engine: Engine, intent: Intent, *, undo: bool = False) -> str:
    """Do it, and say what was done; Refusal with the lines to type where that is not possible."""
    pidfile = engine.pidfile(intent)
    if pidfile is not None and (pid := _pid(pidfile, engine)):
        os.kill(pid, signal.SIGHUP)
        return f"{engine.program} ({pid}) was told to read its configuration again"
    typed = lines(engine, undo=undo)
    if not typed:
        return f"{engine.name} needs no restart"
    if not SYSTEMD_RUNS.is_dir():
        raise Refusal(
            "no-systemd",
            f"{engine.name} was not restarted, for systemd does not run here",
            "restart it in the way of this system",
        )
    for line in typed:
        done = subprocess.run(
            shlex.split(line), capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        if done.returncode != 0:
            errors = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise Refusal("restart-failed", f"{line}: {errors[-1]}", "see journalctl -xe")
    return f"done: {'; '.join(typed)}"


def _pid(pidfile: Path, engine: Engine) -> int | None:
    """The pid in the file, if it is the engine's: the pid may have been reused."""
    try:
        pid = int(pidfile.read_text())
        name = Path(os.readlink(f"/proc/{pid}/exe")).name.removesuffix(" (deleted)")
    except (OSError, ValueError):
        return None
    return pid if name == engine.program else None

"""`mgpu upgrade`: the installed programs take the running ones' place, while containers run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import click

from mgpu_cli import client, options
from mgpu_cli.state import StateDir
from oci_specs import build
from oci_specs.refusal import Refusal
from runtime_hook import holder
from runtime_hook.holder import HolderStatus

UNIT = "mgpud.service"
HOLDER_TIMEOUT_S = 15.0
MGPUD_TIMEOUT_S = 90.0
_LOOK_S = 0.05


@click.command(short_help="Have the installed version take over while containers run.")
@options.root
def upgrade(state: StateDir) -> None:
    """Have the installed holder and mgpud take the place of the running ones, while containers run.

    Calls that containers make meanwhile wait for the new mgpud. If the new program cannot take over the
    state, it is not started, and the old one keeps running.
    """
    before = holder.status(state.holder)
    old_holder = build.of_process(before.pid)[0]
    old_mgpud = (client.health(state.control) or {}).get("build", build.UNKNOWN)
    after = _replace_holder(state, before)
    click.echo(
        f"holder (pid {after.pid}): {build.of_process(after.pid)[0]} in place of {old_holder}; "
        f"it holds {after.listeners} listeners"
    )
    _renew_mgpud(state, after)
    began = time.monotonic()
    found = _serving(state, after.mgpud_pid)
    instead = f"in place of {old_mgpud} (pid {after.mgpud_pid})" if after.mgpud_pid else "where none served"
    click.echo(
        f"mgpud (pid {found['pid']}): {found.get('build', build.UNKNOWN)} {instead} after "
        f"{time.monotonic() - began:.1f} s; it serves {found['containers']} containers"
    )
    # An mgpud of before this member does not say it.
    if found.get("prefix", sys.prefix) != sys.prefix:
        click.echo(
            f"mgpu: what runs is installed in {found['prefix']}, and this command in {sys.prefix}; to run this one's, "
            "install it there, or end what runs and start it from here",
            err=True,
        )


def _until(limit_s: float, done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except PermissionError as error:
        raise Refusal(
            "not-root", f"the holder (pid {pid}) takes no signal from you", "run it as root"
        ) from error


def _replace_holder(state: StateDir, before: HolderStatus) -> HolderStatus:
    now = before

    def over() -> bool:
        nonlocal now
        now = holder.status(state.holder)
        return (now.replaced, now.refused) != (before.replaced, before.refused)

    _signal(before.pid, signal.SIGHUP)
    if not _until(HOLDER_TIMEOUT_S, over) or now.replaced == before.replaced:
        raise Refusal(
            "not-replaced",
            f"the holder (pid {before.pid}) goes on as it was: the installed one cannot go on in its place",
            "see what it logs; nothing has changed for containers",
        )
    return now


def _renew_mgpud(state: StateDir, now: HolderStatus) -> None:
    if now.starts_mgpud:
        _signal(now.pid, signal.SIGUSR1)
    elif now.mgpud_pid and _main_pid() != now.mgpud_pid:
        raise Refusal(
            "not-started-here",
            f"mgpud (pid {now.mgpud_pid}) is run neither by mgpu up nor by {UNIT}",
            f"start the new one with mgpud --root {state.path} --take-over and the options of the old one",
        )
    else:
        done = subprocess.run(
            ["systemctl", "restart", UNIT],
            capture_output=True,
            text=True,
            check=False,
            timeout=MGPUD_TIMEOUT_S,
        )
        if done.returncode != 0:
            printed = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise Refusal(
                "restart-failed", f"systemctl restart {UNIT}: {printed[-1]}", f"see journalctl -u {UNIT}"
            )


def _main_pid() -> int:
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        shown = subprocess.run(
            ["systemctl", "show", "--property=MainPID", "--value", UNIT],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
        return int(shown.stdout)
    return 0


def _serving(state: StateDir, old_pid: int) -> dict[str, object]:
    """What the new mgpud says of itself once it serves."""
    found: dict[str, object] = {}
    started = False

    def over() -> bool:
        nonlocal found, started
        with suppress(Refusal):
            found = client.ask(state.control, "health")
            if found["pid"] != old_pid:
                return True
        now = holder.status(state.holder)
        # The new one is gone again, and the old one still serves.
        failed = started and not now.starting and now.mgpud_pid == old_pid
        started = started or bool(now.starting)
        return failed

    if not _until(MGPUD_TIMEOUT_S, over) or found.get("pid") in (None, old_pid):
        raise Refusal(
            "not-taken-over",
            f"the new mgpud does not serve, and that before (pid {old_pid}) goes on",
            f"see what it said in {state.log / 'mgpud.log'} or in journalctl -u {UNIT}",
        )
    return found

"""`mgpu uninstall`: engines and systemd read what they read before `mgpu install`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from install import apply, planning, runtime_conf
from install.change import Plan
from install.engines import ALL, ENGINES
from mgpu_cli import client, options, render
from mgpu_cli.install import (
    bin_dir_option,
    config_option,
    dry_run_option,
    engines_argument,
    intended,
    must_be_root,
    our_parts,
    restart_option,
    say_changes,
    say_done,
    select,
    show,
    take_effect,
)
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal

POLL_S = 1.0
SHOWN = 5
# The sockets of this machine (proc(5)); the fourth column is the flags, with this bit for one that listens.
UNIX_SOCKETS = Path("/proc/net/unix")
LISTENS = 0x10000


@click.command(short_help="Take back what install has done.")
@engines_argument
@dry_run_option
@config_option
@bin_dir_option
@click.option("--drain", is_flag=True, help="Wait until no container holds a GPU.")
@restart_option
@options.root
def uninstall(
    names: tuple[str, ...],
    dry_run: bool,
    config: Path | None,
    bin_dir: Path,
    drain: bool,
    restarts: bool,
    state: StateDir,
) -> None:
    """Take away from engines what mgpu install wrote: their files are as they were, byte for byte.

    Refused while containers hold a GPU. A file that was changed since keeps those changes.
    """
    # Also engines that were removed, since their files may still be here.
    chosen = list(ENGINES.values()) if ALL in names else select(names, config)
    if not dry_run:
        must_be_root()
        _wait_until_free(state, drain)
    intent = intended(config, bin_dir)
    # What the runtime below is does not matter for what is taken away.
    programs = our_parts("true")
    plans = [
        (engine, planning.to_uninstall(engine.targets(programs, intent))) for engine in reversed(chosen)
    ]
    shared = runtime_conf.taken_away(programs, chosen)
    together = sum((plan for _, plan in plans), Plan()) + shared
    if dry_run:
        show(together)
        return
    apply.apply(together)
    runtime_conf.tidied()
    taken = True
    for engine, plan in plans:
        say_done(engine, plan)
        for note in plan.notes:
            click.echo(f"  note: {note}")
        if plan.changes:
            taken &= take_effect(engine, intent, restarts, undo=True)
    say_changes(shared)
    if not taken:
        sys.exit(1)


def _wait_until_free(state: StateDir, drain: bool) -> None:
    """Return once no container holds a GPU; Refusal at once when it is not to be waited for."""
    reported = 0
    while holders := _holders(state):
        if not drain:
            raise Refusal(
                "in-use",
                f"{_counted(holders)} a GPU: {_listed(holders)}",
                "stop them, or wait for them with --drain; nothing was changed",
            )
        if len(holders) != reported:
            click.echo(f"waiting: {_counted(holders)} a GPU: {_listed(holders)}")
            reported = len(holders)
        time.sleep(POLL_S)


def _holders(state: StateDir) -> list[dict[str, Any]]:
    """The containers with a grant. None without a mgpud; unknown if its holder runs."""
    try:
        found: list[dict[str, Any]] = client.ask(state.control, "list")["containers"]
    except Refusal as refusal:
        if refusal.code != "mgpud-not-running":
            raise
        if _listens(state.seccomp):
            raise Refusal(
                "in-use-unknown",
                f"mgpud does not run, but its holder does at {state.seccomp}: containers may hold a GPU",
                "start mgpud to see them, or stop the holder; nothing was changed",
            ) from refusal
        return []
    return found


def _listens(socket: Path) -> bool:
    # Looked up, not connected to: the holder would take a connection for a container's.
    for line in UNIX_SOCKETS.read_text().splitlines()[1:]:
        columns = line.split(maxsplit=7)
        if columns[7:] == [str(socket)] and int(columns[3], 16) & LISTENS:
            return True
    return False


def _counted(holders: list[dict[str, Any]]) -> str:
    return "1 container holds" if len(holders) == 1 else f"{len(holders)} containers hold"


def _listed(holders: list[dict[str, Any]]) -> str:
    shown = [render.name(each) or each["container_id"][: render.SHORT_ID_CHARS] for each in holders[:SHOWN]]
    return ", ".join(shown) + (", …" if len(holders) > SHOWN else "")

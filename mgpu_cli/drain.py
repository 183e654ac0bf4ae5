"""`mgpu drain`: waits until no container of the node holds a GPU."""

from __future__ import annotations

import time
from typing import Any

import click

from mgpu_cli import client, options, render
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal
from runtime_hook.bound import is_bound

POLL_S = 1.0
SHOWN = 5


@click.command(short_help="Wait until no container holds a GPU.")
@options.root
def drain(state: StateDir) -> None:
    """Wait until no container holds a GPU, and say which ones are waited for.

    Nothing keeps further containers from starting: cordon the node first.
    """
    wait_until_free(state, drain=True)


def wait_until_free(state: StateDir, drain: bool) -> None:
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
        # A connection would be taken for a container's.
        if is_bound(state.seccomp):
            raise Refusal(
                "in-use-unknown",
                f"mgpud does not run, but its holder does at {state.seccomp}: containers may hold a GPU",
                "start mgpud to see them, or stop the holder; nothing was changed",
            ) from refusal
        return []
    return found


def _counted(holders: list[dict[str, Any]]) -> str:
    return "1 container holds" if len(holders) == 1 else f"{len(holders)} containers hold"


def _listed(holders: list[dict[str, Any]]) -> str:
    shown = [render.name(each) or each["container_id"][: render.SHORT_ID_CHARS] for each in holders[:SHOWN]]
    return ", ".join(shown) + (", …" if len(holders) > SHOWN else "")

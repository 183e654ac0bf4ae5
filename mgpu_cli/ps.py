"""`mgpu ps`: the containers that hold a grant."""

from __future__ import annotations

import click

from mgpu_cli import client, options, render
from mgpu_cli.state import StateDir


@click.command()
@options.root
@options.output
def ps(state: StateDir, output: str) -> None:
    """List containers with their cards, caps and use."""
    found = client.ask(state.control, "list")
    if output == "json":
        render.as_json(found["containers"])
    else:
        render.containers(found["containers"], found.get("unreadable"))

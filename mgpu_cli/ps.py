"""`mgpu ps`: the containers that hold a grant."""

import time

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from mgpu_cli import client, options, render
from mgpu_cli.state import StateDir

WATCH_S = 1.0


@click.command()
@options.root
@click.option("-w", "--watch", is_flag=True, help="Show them anew every second, until ^C.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json"]),
    default="table",
    show_default=True,
    help=f"wide has whole ids, pids and UUIDs too; {options.json_as('container')}",
)
def ps(state: StateDir, watch: bool, output: str) -> None:
    """List containers with their GPUs, caps and use."""
    if not watch:
        _show(state, output)
        return
    try:
        if output == "json" or not Console().is_terminal:
            while True:
                _show(state, output)
                time.sleep(WATCH_S)
        with Live(Text("…"), screen=True, auto_refresh=False) as live:
            while True:
                found = client.listing(state.control)
                text = render.containers_text(found["containers"], wide=output == "wide")
                live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        pass


def _show(state: StateDir, output: str) -> None:
    found = client.listing(state.control)
    if output == "json":
        render.as_json(found["containers"])
    else:
        render.containers(found["containers"], found.get("unreadable"), wide=output == "wide")

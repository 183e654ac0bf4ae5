"""`mgpu devices`: the node's cards and what of them is granted."""

import click

from mgpu_cli import client, options, render
from mgpu_cli.state import StateDir


@click.command()
@options.root
@options.output_card
def devices(state: StateDir, output: str) -> None:
    """List GPUs with their memory, granted and used, in MiB."""
    cards = client.ask(state.control, "list")["cards"]
    if output == "json":
        render.as_json(cards)
    else:
        render.cards(cards)

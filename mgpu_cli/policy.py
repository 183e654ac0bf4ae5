"""`mgpu policy`: which compute policy each card runs."""

from typing import Any

import click

from mgpu_cli import client, options, policies, render
from mgpu_cli.state import StateDir


@click.command(short_help="Show or set the GPUs' compute policies.")
@click.argument("policy", required=False, type=policies.CHOICE, metavar="[POLICY]")
@options.root
@click.option(
    "--gpu",
    "--card",
    "cards",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="This GPU; may be given several times.  [default: all]",
)
@options.output_policy
def policy(policy: str | None, state: StateDir, cards: tuple[int, ...], output: str) -> None:
    """Show which compute policy each GPU runs and whose word that is; with POLICY, set it.

    A policy set here holds at once for the containers on the GPU and for those to come, whatever they ask,
    until it is set anew or mgpud ends. The GPUs of one container are set together.
    """
    members: dict[str, Any] = {"cards": list(cards)} if cards else {}
    if policy is not None:
        members["policy"] = policies.canonical(policy)
    found = client.ask(state.control, "policy", **members)["cards"]
    if output == "json":
        render.as_json(found)
    else:
        render.policies(found)

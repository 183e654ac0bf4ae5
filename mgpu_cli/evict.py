"""`mgpu evict` and `mgpu resume`: what a container holds of the cards, moved to host memory and back."""

import time
from typing import Any

import click

from mgpu_cli import client, options, render
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal, quoted

POLL_S = 0.05
# How often it is said how far a move is.
SAID_S = 1.0
Container = dict[str, Any]


@click.command(short_help="Move a container's GPU memory to host memory.")
@click.argument("container")
@options.root
@options.output_container
def evict(container: str, state: StateDir, output: str) -> None:
    """Move what a container holds of the GPUs to host memory, where it stays until mgpu resume.

    Its processes wait in their next CUDA call meanwhile, and then go on with their data. CONTAINER, as mgpu
    set names it, is any one, whether its memory gives way to online containers or not. The work that it has
    submitted completes first, when the scheduler lets it run.
    """
    _move(state, "evict", container, "evicted", output)


@click.command(short_help="Move an evicted container's memory back to its GPUs.")
@click.argument("container")
@click.option("--gpus", metavar="UUID[,UUID]", help="Move it to these GPUs of the same model instead.")
@options.root
@options.output_container
def resume(container: str, gpus: str | None, state: StateDir, output: str) -> None:
    """Move an evicted container back to its GPUs, if there is room for all of it.

    With --gpus, as many as it has, what it was granted moves there with its data.
    """
    named = {} if gpus is None else {"gpus": [name.strip() for name in gpus.split(",")]}
    _move(state, "resume", container, "running", output, **named)


def _move(state: StateDir, verb: str, container: str, until: str, output: str, **more: Any) -> None:
    """Refusal when it is not done; it is as before then."""
    found = client.ask_about(state.control, verb, container, **more)["container"]
    told, told_s = "", time.monotonic()
    while (reclaim := found["reclaim"])["state"] != until:
        if why := reclaim["not_moved"]:
            raise Refusal(
                "not-moved",
                f"container {quoted(found['container_id'])} is {reclaim['state']} as before: {why}",
                "see what mgpud logs, then try again",
            )
        if not reclaim["asked"] and reclaim["state"] in ("running", "evicted"):
            raise Refusal(
                "not-asked",
                f"container {quoted(found['container_id'])} is {reclaim['state']}, and mgpud knows of no "
                f"request to {verb} it: it has begun anew since, or another request came after it",
                "see mgpu ps, then try again",
            )
        if time.monotonic() - told_s >= SAID_S and (far := _far(found)) != told:
            told, told_s = far, time.monotonic()
            click.echo(far, err=True)
        time.sleep(POLL_S)
        found = _listed(state, found["id"])
    if output == "json":
        render.as_json(found)
    else:
        render.containers([found])


def _far(found: Container) -> str:
    evicted = sum(card["evicted_bytes"] for card in found["cards"])
    held = evicted + sum(card["used_bytes"] for card in found["cards"])
    return f"{found['reclaim']['state']}: {render.mib(evicted)} of {render.mib(held)} MiB in host memory"


def _listed(state: StateDir, grant: str) -> Container:
    for each in client.listing(state.control)["containers"]:
        if each["id"] == grant:
            row: Container = each
            return row
    raise Refusal(
        "container-ended", f"the container of grant {grant} has ended", "nothing is left to be done"
    )

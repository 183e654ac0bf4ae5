"""`mgpu top`: who uses the cards right now."""

import json
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from mgpu_cli import client, frame, options, render, table
from mgpu_cli.frame import Frame
from mgpu_cli.state import StateDir
from oci_specs.vocabulary import HEEDS_QUOTAS

COLUMNS = ("CONTAINER", "CLASS", "QUOTA%", "CHARGED%", "STATE", "PREEMPTED", "USED/CAP MiB", "NAME")
_DIM, _BOLD, _HEADING = "dim", "bold", "reverse"


@click.command(short_help="Watch who uses the GPUs.")
@options.root
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.05),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that a frame covers.",
)
@click.option("--once", is_flag=True, help="Print one frame and end.")
@options.output
def top(state: StateDir, interval_s: float, once: bool, output: str) -> None:
    """Show each GPU's containers with their share of it over the last interval, until ^C.

    CHARGED% is the time of the GPU that a container was charged for: it had work and was let run. With
    -o json a frame is one line.
    """
    frames = _frames(state, interval_s)
    try:
        if output == "json":
            for found in frames:
                click.echo(json.dumps(found))
                if once:
                    return
        elif once or not Console().is_terminal:
            for found in frames:
                click.echo(text(found).plain)
                if once:
                    return
        else:
            with Live(Text("…"), screen=True, auto_refresh=False) as live:
                for found in frames:
                    live.update(text(found), refresh=True)
    except KeyboardInterrupt:
        pass


def _frames(state: StateDir, interval_s: float) -> Iterator[Frame]:
    before = client.listing(state.control)
    while True:
        time.sleep(interval_s)
        after = client.listing(state.control)
        yield frame.between(before, after)
        before = after


def text(found: Frame) -> Text:
    """A frame as lines: a heading for each card, then its containers."""
    lines = Text(no_wrap=True, overflow="ellipsis")
    rows = [_cells(row) for card in found["cards"] for row in card["containers"]]
    # All cards' rows are laid out together, so that columns stand below one another.
    printed = iter(table.text([COLUMNS, *rows]).splitlines())
    columns = next(printed)
    if not found["cards"]:
        lines.append("This node has no GPUs.\n")
    for card in found["cards"]:
        lines.append(_heading(card) + "\n", _HEADING)
        if card["containers"]:
            lines.append(columns + "\n", _DIM)
        for row in card["containers"]:
            lines.append(next(printed) + "\n", _style(row))
    lines.rstrip()
    return lines


def _heading(card: dict[str, Any]) -> str:
    online = "online busy" if card["online_busy"] else "online idle"
    memory = f"{render.mib(card['used_bytes'])}/{card['memory_mib']} MiB"
    if card.get("reclaimable_mib") or card.get("evicted_bytes"):
        memory += f"  {card['reclaimable_mib']} reclaimable, {render.mib(card['evicted_bytes'])} evicted"
    return f"GPU {card['index']}  {card['name']}  {card['policy'] or 'free'}  {online}  {memory}"


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    heeded = row["quota_percent"] is not None and row["policy"] in HEEDS_QUOTAS
    return (
        row["container_id"][: render.SHORT_ID_CHARS],
        row["class"],
        row["quota_percent"] if heeded else "-",
        "-" if row["share_percent"] is None else f"{row['share_percent']:.1f}",
        f"{row['state']}, video {row['video_percent']:.1f}%" if row["video_percent"] else row["state"],
        row["preemptions"],
        f"{render.mib(row['used_bytes'])}/{row['memory_mib']}",
        row["name"] or "-",
    )


def _style(row: dict[str, Any]) -> str:
    if not row["busy"]:
        return _DIM
    return _BOLD if row["state"] == "running" else ""

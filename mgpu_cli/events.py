"""`mgpu events`: what happened to containers."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

import click

from mgpu_cli import client, describe, names, options, render
from mgpu_cli.render import Container
from mgpu_cli.state import StateDir
from oci_specs.refusal import printable

FOLLOW_S = 0.5


@click.command(short_help="Say what happened to containers.")
@click.argument("container", required=False)
@options.root
@options.since
@options.follow
@options.output_event
def events(
    container: str | None, state: StateDir, since: datetime | None, follow: bool, output: str
) -> None:
    """Say which containers were refused, ended, evicted, brought back or put under another policy, and why.

    mgpud remembers the last 256 events of its containers, also of those that have ended. CONTAINER is as for
    mgpu describe. With -o json an event is one line.
    """
    wanted = names.aliases(container)
    with suppress(KeyboardInterrupt):
        for event in _read(state, follow):
            if wanted and not any(describe.is_named(event, each) for each in wanted):
                continue
            if since is not None and datetime.fromisoformat(event["time"]) < since:
                continue
            click.echo(json.dumps(event) if output == "json" else _line(event))


def _read(state: StateDir, follow: bool) -> Iterator[Container]:
    number = 0
    while True:
        reply = client.ask(state.control, "watch", since=number)
        names.give(reply["events"])
        yield from reply["events"]
        if not follow:
            return
        number = reply["next"]
        time.sleep(FOLLOW_S)


def _line(event: Container) -> str:
    who = render.name(event) or event["container_id"][: render.SHORT_ID_CHARS]
    at = f"{datetime.fromisoformat(event['time']).astimezone():%Y-%m-%d %H:%M:%S}"
    return printable(f"{at}  {event['kind']}  {who}  {event['text']}")

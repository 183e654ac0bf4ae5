"""`mgpu health`: whether mgpu does its work on this node."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import click
from rich.console import Console
from rich.text import Text

from mgpu_cli import client, options, render, table
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal, printable
from runtime_hook import needs
from runtime_hook.needs import Missing, Place

State = Literal["ok", "attention", "failed"]
# Exit statuses, as monitoring plugins have them.
STATUS: dict[State, int] = {"ok": 0, "attention": 1, "failed": 2}
_STYLES: dict[State, str] = {"ok": "green", "attention": "bold yellow", "failed": "bold red"}
# A thread that mgpud's watchdog says this of; native_sched/daemon/control/health.py takes slow drivers into
# account.
_STUCK_S = 10.0
# Of a table that tenants fill: from here on newcomers run short of it soon.
_FULL, _FILLING = 0.9, 0.75
_NEWS = timedelta(minutes=10)
_SHOWN_ERRORS = 5
_CARDS = ("GPU", "NAME", "CONTAINERS", "USED/GRANTED/TOTAL MiB", "POLICY")


class Check(NamedTuple):
    state: State
    name: str
    text: str


def checks(
    found: dict[str, Any] | Refusal,
    listing: dict[str, Any] | None,
    *,
    missing: Sequence[Missing],
    metrics: bool,
    now: datetime,
) -> list[Check]:
    """What mgpud says of itself, or why it says nothing, judged.

    missing: what a container's start needs and is not there.
    """
    starts = [
        Check("failed" if each.stops == "all" else "attention", each.name, f"{each.what}; {each.line}")
        for each in missing
    ]
    if isinstance(found, Refusal):
        return starts
    return [
        Check("ok", "mgpud", _self(found)),
        *(starts or [Check("ok", "start", "all that a container needs is there")]),
        *_driver(found),
        *_threads(found),
        Check("ok", "metrics", "served") if metrics else Check("attention", "metrics", "not served"),
        *_tenants(found, listing),
        _tables(found),
        *_recovery(found),
        *_errors(found, now),
    ]


def _self(found: dict[str, Any]) -> str:
    up = timedelta(seconds=int(found["uptime_seconds"]))
    return f"pid {found['pid']}, up {up}, at most {found['max_rss_kib'] >> 10} MiB"


def _driver(found: dict[str, Any]) -> Iterator[Check]:
    """One that does not answer is missing for a start."""
    if found["driver_alive"]:
        yield Check("ok", "driver", f"{found['driver']} {found['driver_version']} answers")


def _threads(found: dict[str, Any]) -> Iterator[Check]:
    stuck_s = found.get("scheduler_stuck_seconds", 0)
    turns = f"{found.get('scheduler_turns', 0)} turns, poll {found['poll_fast_us']} us, hold {found['hold_ms']} ms"
    if stuck_s >= _STUCK_S:
        yield Check("failed", "scheduler", f"stuck for {stuck_s:.0f} s")
    elif found["sched_fifo"]:
        yield Check("ok", "scheduler", f"SCHED_FIFO, {turns}")
    else:
        yield Check("attention", "scheduler", f"not under SCHED_FIFO: others can delay preemption; {turns}")
    stuck_s = found.get("mediator_stuck_seconds", 0)
    served = f"{found['listeners']} listeners"
    if stuck_s >= _STUCK_S:
        yield Check("failed", "mediator", f"{served}, at one call for {stuck_s:.0f} s")
    else:
        yield Check("ok", "mediator", served)


def _tenants(found: dict[str, Any], listing: dict[str, Any] | None) -> Iterator[Check]:
    yield Check("ok" if found["cards"] else "attention", "GPUs", str(found["cards"]))
    text = str(found["containers"])
    rows = listing["containers"] if listing else []
    for word in ("advisory", "draining"):
        count = sum(row["advisory"] if word == "advisory" else row["state"] == word for row in rows)
        text += f", {count} {word}" if count else ""
    yield Check("ok", "containers", text)
    for row in rows:
        if row.get("lost_listener"):
            name = render.name(row) or row["container_id"]
            yield Check(
                "failed", "listener", f"{name} has lost its own: its GPU calls fail until it is ended"
            )


def _tables(found: dict[str, Any]) -> Check:
    """The one that is fullest."""
    parts = [(one["used"] / one["most"], one) for one in found.get("tables", [])]
    if not parts:
        return Check("ok", "tables", "not told")
    part, one = max(parts, key=lambda each: each[0])
    state: State = "failed" if part >= _FULL else "attention" if part >= _FILLING else "ok"
    return Check(state, "tables", f"{one['used']} of {one['most']} {one['name']}")


def _recovery(found: dict[str, Any]) -> Iterator[Check]:
    """None for the first mgpud: there were no containers to take over."""
    for name in found.get("lost", []):
        yield Check("failed", "lost", render.lost(name))
    taken = found.get("recovered")
    if taken is None or found.get("generation", 1) <= 1:
        return
    text = (
        f"mgpud {found['generation']} took over {taken['tenants']} containers, {taken['listeners']} listeners "
        f"and {taken['calls']} waiting calls within {taken['duration_ms']:.0f} ms of its start"
    )
    if taken["failed"]:
        yield Check("failed", "recovery", f"{text}; {taken['failed']} could not be taken over")
    else:
        yield Check("ok", "recovery", text)


def _errors(found: dict[str, Any], now: datetime) -> Iterator[Check]:
    errors = [one for one in found.get("errors", []) if one["level"] == "error"]
    new = [one for one in errors if now - datetime.fromisoformat(one["time"]) < _NEWS]
    if new:
        yield Check("attention", "errors", f"{len(new)} in the last ten minutes")
    else:
        yield Check("ok", "errors", "none in the last ten minutes")


@click.command(short_help="Say whether mgpu does its work here.")
@options.root
@options.output
def health(state: StateDir, output: str) -> None:
    """Say whether containers with a GPU would start, mgpud's threads do their work, and what was logged last.

    The exit status is 0 when all is well, 1 when something wants looking at, 2 when containers are not
    served.
    """
    judged, answered, listing = judge(state)
    status = max(STATUS[check.state] for check in judged)
    if output == "json":
        members = ("version", "ok")
        mgpud = answered and {name: answered[name] for name in answered if name not in members}
        click.echo(
            json.dumps({"status": status, "checks": [x._asdict() for x in judged], "mgpud": mgpud}, indent=2)
        )
    else:
        text = screen(judged, answered, listing)
        console = Console(highlight=False)
        if console.is_terminal:
            console.print(text, soft_wrap=True)
        else:
            click.echo(text.plain)
    sys.exit(status)


def judge(state: StateDir) -> tuple[list[Check], dict[str, Any] | None, dict[str, Any] | None]:
    """The checks, and what mgpud says of itself and lists: None where it does not answer."""
    found, listing = _ask(state)
    answered = None if isinstance(found, Refusal) else found
    place = Place(
        state=state.path,
        health=found.message if isinstance(found, Refusal) else found,
        cdi_folders=needs.cdi_folders(state.path, _node_config(state), answered or ""),
    )
    judged = checks(
        found,
        listing,
        missing=needs.missing(place),
        metrics=needs.listens(state.metrics),
        now=datetime.now(UTC),
    )
    return judged, answered, listing


def _node_config(state: StateDir) -> str:
    try:
        return (state.path / "node.toml").read_text(errors="replace")
    except OSError:
        return ""


def _ask(state: StateDir) -> tuple[dict[str, Any] | Refusal, dict[str, Any] | None]:
    try:
        return client.ask(state.control, "health"), client.listing(state.control)
    except Refusal as refusal:
        return refusal, None


def screen(judged: list[Check], found: dict[str, Any] | None, listing: dict[str, Any] | None) -> Text:
    """The checks, the cards and the last lines of the log that are worth one."""
    lines = Text(no_wrap=True, overflow="ellipsis")
    printed = table.text(judged).splitlines()
    for check, line in zip(judged, printed, strict=True):
        lines.append(line[: len(check.state)], _STYLES[check.state])
        lines.append(line[len(check.state) :] + "\n")
    if listing and listing["cards"]:
        lines.append("\n" + table.text([_CARDS, *map(_card, listing["cards"])]))
    errors = (found or {}).get("errors", [])[-_SHOWN_ERRORS:]
    if errors:
        lines.append("\nlast in the log\n")
        for one in errors:
            lines.append(printable(f"{one['time']} {one['level']} {one['event']} {one['text']}") + "\n")
    lines.rstrip()
    return lines


def _card(card: dict[str, Any]) -> tuple[object, ...]:
    memory = f"{render.mib(card['used_bytes'])}/{card['granted_mib']}/{card['memory_mib']}"
    return card["index"], card["name"], card["containers"], memory, card["policy"] or "-"

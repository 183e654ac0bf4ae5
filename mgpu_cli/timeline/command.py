"""`mgpu timeline`: who had the cards when."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

import click

from mgpu_cli import options, render, table
from mgpu_cli.state import StateDir
from mgpu_cli.timeline import account, trace
from mgpu_cli.timeline.collect import Collector
from mgpu_cli.timeline.rows import Lane, Mark, Row, Timeline
from oci_specs.refusal import Refusal, quoted

COLUMNS = ("GPU", "CONTAINER", "CLASS", "RAN ms", "SUSPENDED ms", "HELD ms", "DRAINED ms")
_LAST_S = 10.0
_READ_EVERY_S = 0.2
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Show, draw or record who had the GPUs when.")
@options.root
@click.option(
    "--seconds",
    "seconds",
    type=click.FloatRange(min=0.01),
    metavar="N",
    help="Watch for so long; ^C ends it earlier.",
)
@click.option(
    "--last",
    "last_s",
    type=click.FloatRange(min=0.01),
    metavar="N",
    help=f"The last N seconds, as far as mgpud remembers.  [default: {_LAST_S:g}]",
)
@click.option(
    "--follow",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write events to FILE as they come, a JSON object a line, until ^C; - is standard output.",
)
@click.option("--png", type=_FILE, metavar="FILE", help="Draw it.")
@click.option(
    "--trace", "trace_file", type=_FILE, metavar="FILE", help="Write it for ui.perfetto.dev to open."
)
@options.output
def timeline(
    state: StateDir,
    seconds: float | None,
    last_s: float | None,
    follow: Path | None,
    png: Path | None,
    trace_file: Path | None,
    output: str,
) -> None:
    """Show which container had work, which one had the GPU, and which was suspended or held back meanwhile.

    Prints each container's sums; --png and --trace show every turn. It is what the scheduler saw and did:
    work is seen a little after it came.
    """
    if sum(given is not None for given in (seconds, last_s, follow)) > 1:
        raise click.UsageError("give one of --seconds, --last and --follow")
    if follow is not None:
        if png or trace_file:
            raise click.UsageError("--follow writes events only: leave --png and --trace out")
        _follow(Collector(state.control), follow)
        return
    found = _watched(Collector(state.control), seconds, last_s or _LAST_S)
    if trace_file:
        _write(trace_file, lambda file: json.dump(trace.chrome(found), file))
    if png:
        _draw(found, png)
    if output == "json":
        click.echo(json.dumps(_as_json(found)))
    else:
        click.echo(_sums(found), nl=False)


def _watched(collector: Collector, seconds: float | None, last_s: float) -> Timeline:
    """The next `seconds`, or else the last `last_s`."""
    collector.meet()
    events = list(collector.read())
    forgotten = collector.lost
    if seconds is None:
        end_ns = collector.now_ns
        start_ns = end_ns - round(last_s * render.NS_PER_S)
    else:
        start_ns = collector.now_ns
        end_ns = start_ns + round(seconds * render.NS_PER_S)
        try:
            while collector.now_ns < end_ns:
                left_s = (end_ns - collector.now_ns) / render.NS_PER_S
                time.sleep(min(_READ_EVERY_S, left_s))
                collector.meet()
                events += collector.read()
        except KeyboardInterrupt:
            end_ns = collector.now_ns
    begin_ns = events[0].at_ns if events else start_ns
    if forgotten and begin_ns > start_ns:
        remembered_s = (end_ns - begin_ns) / render.NS_PER_S
        click.echo(f"mgpu: mgpud remembers only the last {remembered_s:.1f} s", err=True)
    if collector.lost > forgotten:
        click.echo(f"mgpu: mgpud forgot {collector.lost - forgotten} events before they were read", err=True)
    # Without events at all nothing has changed since long ago.
    begin_ns = min(begin_ns, start_ns) if not forgotten else begin_ns
    return account.read(events, collector.who, begin_ns=begin_ns, start_ns=start_ns, end_ns=end_ns)


def _follow(collector: Collector, path: Path) -> None:
    for _ in collector.read():
        pass
    lost = collector.lost
    with _opened(path) as file:
        try:
            while True:
                collector.meet()
                for event in collector.read():
                    who = collector.who.get(event.grant)
                    line = {**event._asdict(), "container": who.label if who else None}
                    file.write(json.dumps(line) + "\n")
                if collector.lost > lost:
                    file.write(json.dumps({"lost": collector.lost - lost}) + "\n")
                    lost = collector.lost
                file.flush()
                time.sleep(_READ_EVERY_S)
        except KeyboardInterrupt:
            pass


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    try:
        with click.open_file(str(path), "w") as file:
            yield file
    except OSError as error:
        raise _cannot_write(path, error) from error


def _write(path: Path, fill: Callable[[IO[str]], None]) -> None:
    with _opened(path) as file:
        fill(file)


def _draw(found: Timeline, path: Path) -> None:
    # Pillow takes a tenth of a second to import.
    from mgpu_cli.timeline import picture

    seconds = (found.end_ns - found.start_ns) / render.NS_PER_S
    title = f"Who had the GPUs: {seconds:g} s until {datetime.now().astimezone():%Y-%m-%d %H:%M:%S %Z}"
    try:
        picture.draw(found, title).save(path, "PNG")
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> Refusal:
    return Refusal(
        "cannot-write", f"cannot write {quoted(path)}: {error.strerror or error}", "name another file"
    )


def _sums(found: Timeline) -> str:
    """What each container got, in ms."""
    rows: list[tuple[object, ...]] = [COLUMNS]
    for lane in found.lanes:
        ns = dict.fromkeys(("run", "suspended", "hold", "drain"), 0)
        for row in found.rows:
            if row.lane == lane:
                ns[row.kind] += row.end_ns - row.start_ns
        card = lane.panel.removeprefix("GPU ")
        rows.append((card, lane.label, lane.qos, *(f"{each / 1e6:.1f}" for each in ns.values())))
    return table.text(rows) if len(rows) > 1 else "No container has had a GPU.\n"


def _as_json(found: Timeline) -> dict[str, object]:
    return {
        "start_ns": found.start_ns,
        "end_ns": found.end_ns,
        "rows": [_flat(row) for row in found.rows],
        "marks": [_flat(mark) for mark in found.marks],
    }


def _flat(one: Row | Mark) -> dict[str, object]:
    own = one._asdict()
    lane: Lane = own.pop("lane")
    return {**lane._asdict(), **own}

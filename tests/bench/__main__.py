"""make bench: measures what mgpu costs, each figure beside the plain thing in the same run."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import click

from tests.bench import (
    cluster,
    colocation,
    extender,
    idle,
    installs,
    ioctls,
    journal,
    mediation,
    nodes,
    recorded,
    recovery,
    routes,
    rows,
    starts,
    traces,
)
from tests.support import arbiter, host, programs


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("build/bench.json"), show_default=True
)
def main(output: Path) -> None:
    """Measure, print a table and write OUTPUT as JSON."""
    if os.geteuid() != 0:
        sys.exit("make bench starts containers: run it as root")
    host.become_private()
    click.echo(f"{platform.platform()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}")
    found: list[rows.Row] = []
    with programs.built() as built, arbiter.running() as mgpu:
        found += ioctls.measure(mgpu, built)
        found += mediation.measure(mgpu, built)
        found += journal.measure(mgpu, built)
        found += starts.measure(mgpu)
        found += idle.measure(mgpu, built)
        found += routes.measure(built)
        found += installs.measure()
    with programs.built() as built:
        found += recorded.measure(built)
        found += recovery.measure(built)
        found += colocation.measure(built)
        found += nodes.measure(built)
    found += traces.measure()
    found += extender.measure()
    found += cluster.measure()
    rows.show(found)
    rows.write(found, output)


if __name__ == "__main__":
    main()

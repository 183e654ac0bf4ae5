"""make bench: measures what mgpu costs, each figure beside the plain thing in the same run."""

import os
import platform
import shlex
import sys
from functools import partial
from pathlib import Path

import click

from tests.bench import (
    changing,
    chips,
    churn,
    cluster,
    colocation,
    engines,
    extender,
    grid,
    idle,
    installs,
    ioctls,
    journal,
    lending,
    mediation,
    nodes,
    polls,
    reclaim,
    recorded,
    recovery,
    routes,
    rows,
    starts,
    traces,
)
from tests.support import arbiter, host, programs

# In the order of the table. The first ones share an arbiter, and with all but the last ones come programs.
BESIDE_AN_ARBITER = {
    "ioctls": ioctls.measure,
    "mediation": mediation.measure,
    "journal": journal.measure,
    "starts": lambda mgpu, _: starts.measure(mgpu),
    "idle": idle.measure,
}
WITH_PROGRAMS = {
    "routes": routes.measure,
    "installs": lambda _: installs.measure(),
    "recorded": recorded.measure,
    "recovery": recovery.measure,
    "colocation": colocation.measure,
    "chips": chips.measure,
    "nodes": nodes.measure,
    "reclaim": reclaim.measure,
    "engines": engines.measure,
}
ALONE = {
    "polls": polls.measure,
    "traces": traces.measure,
    "grid": grid.measure,
    "changing": changing.measure,
    "churn": churn.measure,
    "extender": extender.measure,
    "lending": lending.measure,
    "cluster": cluster.measure,
}
NAMES = [*BESIDE_AN_ARBITER, *WITH_PROGRAMS, *ALONE]


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("build/bench.json"), show_default=True
)
@click.option("--only", type=click.Choice(NAMES), multiple=True, default=NAMES, help="May be repeated.")
def main(output: Path, only: tuple[str, ...]) -> None:
    """Measure, print each figure as it comes and all in a table, and write OUTPUT as JSON.

    What was not chosen, or fails, keeps there what it had.
    """
    if os.geteuid() != 0:
        sys.exit("make bench starts containers: run it as root")
    host.become_private()
    click.echo(f"{platform.platform()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}")
    with programs.built() as built:
        failed = []
        if chosen := [name for name in only if name in BESIDE_AN_ARBITER]:
            with arbiter.running() as mgpu:
                beside = ((name, partial(BESIDE_AN_ARBITER[name], mgpu, built)) for name in chosen)
                failed += rows.collect(beside, output)
        others = ((name, partial(WITH_PROGRAMS[name], built)) for name in only if name in WITH_PROGRAMS)
        failed += rows.collect(others, output)
    failed += rows.collect(((name, ALONE[name]) for name in only if name in ALONE), output)
    found = rows.kept(output)
    rows.show(row for name in only for row in found.get(name, ()))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; once more: make bench ONLY={shlex.quote(' '.join(failed))}")


if __name__ == "__main__":
    main()

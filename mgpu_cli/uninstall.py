"""`mgpu uninstall`: engines and systemd read what they read before `mgpu install`."""

import sys
from pathlib import Path

import click

from install import apply, planning, runtime_conf
from install.change import Plan
from install.engines import ALL, ENGINES
from mgpu_cli import options
from mgpu_cli.drain import wait_until_free
from mgpu_cli.install import (
    bin_dir_option,
    config_option,
    dry_run_option,
    engines_argument,
    intended,
    must_be_root,
    our_parts,
    restart_option,
    say_changes,
    say_done,
    select,
    show,
    take_effect,
)
from mgpu_cli.state import StateDir


@click.command(short_help="Take back what install has done.")
@engines_argument
@dry_run_option
@config_option
@bin_dir_option
@click.option("--drain", is_flag=True, help="Wait until no container holds a GPU.")
@restart_option
@options.root
def uninstall(
    names: tuple[str, ...],
    dry_run: bool,
    config: Path | None,
    bin_dir: Path,
    drain: bool,
    restarts: bool,
    state: StateDir,
) -> None:
    """Take away from engines what mgpu install wrote: their files are as they were, byte for byte.

    Refused while containers hold a GPU. A file that was changed since keeps those changes.
    """
    # Also engines that were removed, since their files may still be here.
    chosen = list(ENGINES.values()) if ALL in names else select(names, config)
    if not dry_run:
        must_be_root()
        wait_until_free(state, drain)
    intent = intended(config, bin_dir)
    # What the runtime below is does not matter for what is taken away; this one is there.
    programs = our_parts(sys.executable)
    plans = [
        (engine, planning.to_uninstall(engine.targets(programs, intent))) for engine in reversed(chosen)
    ]
    shared = runtime_conf.taken_away(programs, chosen)
    together = sum((plan for _, plan in plans), Plan()) + shared
    if dry_run:
        show(together)
        return
    apply.apply(together)
    runtime_conf.tidied()
    taken = True
    for engine, plan in plans:
        say_done(engine, plan)
        for note in plan.notes:
            click.echo(f"  note: {note}")
        if plan.changes:
            taken &= take_effect(engine, intent, restarts, undo=True)
    say_changes(shared)
    if not taken:
        sys.exit(1)

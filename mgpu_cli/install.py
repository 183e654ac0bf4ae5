"""`mgpu install`: container engines and systemd are pointed at this installation of mgpu."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from install import apply, parts, planning, podman, runtime_conf
from install.change import Change, Plan
from install.engine import Engine, Intent, Route
from install.engines import ALL, ENGINES, is_here
from install.restart import lines, restart
from mgpu_cli import runtime_files
from mgpu_cli.state import DEFAULT_ROOT, StateDir
from oci_specs.refusal import Refusal

engines_argument = click.argument(
    "names", metavar="ENGINE...", nargs=-1, required=True, type=click.Choice([*ENGINES, ALL])
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print the diff and change nothing.")
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The engine's configuration file (systemd: the folder of units) instead of its usual one.",
)
bin_dir_option = click.option(
    "--bin-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="/usr/local/bin",
    show_default=True,
    help="A folder on containerd's PATH, for the shim.",
)
restart_option = click.option(
    "--restart", "restarts", is_flag=True, help="Have running engines take the change, too."
)


@click.command(short_help="Point engines at mgpu, or put its services in place.")
@engines_argument
@dry_run_option
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the files below DIR instead, under their whole paths.",
)
@config_option
@click.option(
    "--route",
    type=click.Choice(["auto", "shim", "runc"]),
    default="auto",
    show_default=True,
    help="containerd: by mgpu's shim, or by containerd's own with mgpu-runtime as its runc.",
)
@click.option(
    "--hooks/--no-hooks",
    default=None,
    help="podman: by a precreate hook for its own runtimes, or by a runtime.  [default: as before, else a runtime]",
)
@click.option(
    "--runtime", help="The OCI runtime below: runc, crun or a path.  [default: as before, else runc]"
)
@bin_dir_option
@restart_option
def install(
    names: tuple[str, ...],
    dry_run: bool,
    output: Path | None,
    config: Path | None,
    route: Route,
    hooks: bool | None,
    runtime: str | None,
    bin_dir: Path,
    restarts: bool,
) -> None:
    """Point engines at mgpu: docker, containerd, crio, podman, systemd, or all that are here.

    What is there already stays as it is, and nothing is restarted unless told so. Run again, it finds nothing
    to do.
    """
    if not dry_run and output is None:
        must_be_root()
    chosen = select(names, config)
    if hooks is not None and not any(engine.name == podman.ENGINE.name for engine in chosen):
        raise click.UsageError("--hooks is podman's: name podman")
    intent = intended(config, bin_dir, route, hooks)
    programs = our_parts(runtime or runtime_conf.chosen_runtime() or "runc")
    plans = [(engine, planning.to_install(engine.targets(programs, intent))) for engine in chosen]
    shared = planning.to_install([runtime_conf.target(programs)])
    together = sum((plan for _, plan in plans), shared)
    folders = runtime_conf.with_folders(together)
    if output is None:
        # First: what is not in the record when power is cut would never be taken away.
        together = folders + together
    if dry_run:
        show(together)
        return
    if output is not None:
        for path in apply.write_below(together, output.absolute()):
            click.echo(f"wrote {path}")
        for path in together.unchanged:
            click.echo(f"left out {path}: this host's has all of it already")
        say_notes(together)
        return
    apply.apply(together)
    say_changes(shared + folders)
    taken = True
    for engine, plan in plans:
        say_done(engine, plan)
        for line in (*plan.notes, *engine.limits):
            click.echo(f"  note: {line}")
        if plan.changes or restarts:
            taken &= take_effect(engine, intent, restarts)
        for line in engine.after(intent):
            click.echo(f"  then: {line}")
    if not taken:
        sys.exit(1)


def must_be_root() -> None:
    if os.geteuid() != 0:
        raise Refusal(
            "not-root", "only root may change what engines read", "run it as root, or add --dry-run"
        )


def select(names: Sequence[str], config: Path | None) -> list[Engine]:
    """The engines that were named, in the table's order; for "all" those that are here."""
    if ALL in names:
        chosen = [engine for engine in ENGINES.values() if engine.name in names or is_here(engine)]
    else:
        chosen = [engine for engine in ENGINES.values() if engine.name in names]
    if not chosen:
        raise Refusal(
            "no-engine",
            f"none of {', '.join(ENGINES)} is installed here",
            "install one, or name it; nothing was changed",
        )
    if config is not None and len(chosen) != 1:
        raise click.UsageError("--config is one engine's: name one engine")
    return chosen


def intended(config: Path | None, bin_dir: Path, route: Route = "auto", hooks: bool | None = None) -> Intent:
    where = None if config is None else config.absolute()
    return Intent(config=where, route=route, hooks=hooks, bin_dir=bin_dir.absolute())


def our_parts(runtime: str) -> parts.Parts:
    state = StateDir(DEFAULT_ROOT)
    return parts.found(root=str(state.path), runtime_conf=runtime_files.conf(state, runtime))


def show(plan: Plan) -> None:
    """What --dry-run prints."""
    click.echo(plan.diff() or "nothing to do\n", nl=False)
    say_notes(plan)


def say_notes(plan: Plan) -> None:
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)


def say_done(engine: Engine, plan: Plan) -> None:
    if not plan.changes:
        click.echo(f"{engine.name}: nothing to do")
        return
    click.echo(f"{engine.name}:")
    say_changes(plan, indent="  ")


def say_changes(plan: Plan, *, indent: str = "") -> None:
    for change in plan.changes:
        click.echo(f"{indent}{_verb(change)} {change.path}")


def _verb(change: Change) -> str:
    if change.after is None:
        return "removed"
    return "wrote" if change.before is None else "changed"


def take_effect(engine: Engine, intent: Intent, restarts: bool, *, undo: bool = False) -> bool:
    """Have the engine take the change, or print the command to type; False, with a line, on failure."""
    if not restarts:
        for line in lines(engine, undo=undo):
            click.echo(f"  to take effect: {line}")
        return True
    try:
        click.echo(f"  {restart(engine, intent, undo=undo)}")
    except Refusal as refusal:
        click.echo(refusal.line(), err=True)
        return False
    return True

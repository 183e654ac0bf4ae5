"""The command `mgpu-agent`, which the cluster's pods run."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from cluster.agent import place
from cluster.agent.place import PLACE
from oci_specs.refusal import Refusal
from runtime_hook.bound import is_bound

_MGPU = PLACE / "bin" / "mgpu"
_STATE = Path("/run/mgpu")
_ENGINES = ("containerd", "crio")
_LOOK_S = 1.0
# The image's own names its one folder.
_NODE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

host_option = click.option(
    "--host",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/host",
    show_default=True,
    help="Where the node's root folder is mounted.",
)


class _Group(click.Group):
    """Says a refusal in one line on stderr and exits 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except Refusal as refusal:
            click.echo(refusal.line(), err=True)
            ctx.exit(1)


@click.group(cls=_Group)
def main() -> None:
    """Put mgpu on a node and run it there."""


@main.command()
@host_option
@click.option("--keep", is_flag=True, help="Leave the version that is there.")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    type=click.Choice(_ENGINES),
    help="Point this engine at mgpu; may be given again.",
)
@click.option("--restart-engine", is_flag=True, help="Have the engine take that at once.")
@click.option("--upgrade", is_flag=True, help="Have the new version take over from one that runs.")
@click.option(
    "--node-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What the node's node.toml has to be, unless NODE.toml is beside it; the node's own stays where there "
    "is no such file.",
)
@click.option("--node-name", envvar="NODE_NAME", default="", help="As the API server has it.")
def install(
    host: Path,
    keep: bool,
    engines: tuple[str, ...],
    restart_engine: bool,
    upgrade: bool,
    node_config: Path | None,
    node_name: str,
) -> None:
    """Copy mgpu from this image to /opt/mgpu of the node and point its engines at it."""
    changed = place.install(PLACE, host, keep=keep)
    click.echo(f"{PLACE} of the node {'is new' if changed else 'stays as it is'}")
    state = host / _STATE.relative_to("/")
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if node_config is not None and place.configure(node_config, state / "node.toml", node_name):
        click.echo(f"{_STATE}/node.toml of the node is new")
        changed = True
    if engines:
        restart = ["--restart"] if restart_engine else []
        _on_host(host, "install", *engines, *restart)
    if upgrade and changed and (state / "holder.sock").exists():
        _on_host(host, "upgrade")


@main.command()
@host_option
@click.option("--restart-engine", is_flag=True, help="Have the engines forget mgpu at once.")
def uninstall(host: Path, restart_engine: bool) -> None:
    """Wait until no container of the node holds a GPU, then take mgpu off the node.

    It says which containers it waits for.
    """
    if not place.is_there(host):
        click.echo(f"{PLACE} is not on the node")
        return
    state = host / _STATE.relative_to("/")
    _on_host(host, "drain")
    _until_ended(state)
    _on_host(host, "uninstall", "all", *(["--restart"] if restart_engine else []))
    place.remove(host)
    # The second is there where mgpud was killed at last: see native_sched/nvidia/driver/nvidia/guard.
    for folder in (state, host / "sys/fs/bpf/mgpu"):
        shutil.rmtree(folder, ignore_errors=True)
    click.echo(f"{PLACE} of the node is gone")


@main.command(context_settings={"ignore_unknown_options": True})
@host_option
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
def run(host: Path, argv: tuple[str, ...]) -> None:
    """Become the program ARGV, with the node's root folder."""
    _enter(host)
    try:
        os.execv(argv[0], argv)
    except OSError as error:
        raise Refusal(
            "no-program", f"{argv[0]} of the node: {error.strerror}", "run mgpu-agent install first"
        ) from error


def _on_host(host: Path, *words: str) -> None:
    """`mgpu WORDS` on the node; Refusal with its last line when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "cluster.agent.main", "run", "--host", host, "--", _MGPU, *words],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise Refusal(
            "node-command", f"mgpu {' '.join(words)} on the node: {lines[-1]}", "see this container's log"
        )


def _until_ended(state: Path) -> None:
    """The agent's pod waits for containers itself, and for nothing else."""
    said = False
    while any(is_bound(state / name) for name in ("holder.sock", "seccomp.sock")):
        if not said:
            click.echo("waiting: mgpu's agent still runs on this node")
            said = True
        time.sleep(_LOOK_S)


def _enter(host: Path) -> None:
    try:
        os.chroot(host)
    except PermissionError as error:
        raise Refusal(
            "no-chroot", f"the folder {host} cannot be entered", "give the container CAP_SYS_CHROOT"
        ) from error
    os.chdir("/")
    os.environ["PATH"] = _NODE_PATH


if __name__ == "__main__":
    main()

"""`mgpu up`: simulated cards and the arbiter in the foreground, for any engine to be pointed at."""

import fcntl
import os
import shlex
import sys
from contextlib import closing, suppress
from pathlib import Path

import click

from mgpu_cli import client, engines, options, profiles, runtime_files
from mgpu_cli.fd_store import FdStore
from mgpu_cli.state import StateDir
from mgpu_cli.supervise import Ended, Stopped, Supervisor
from oci_specs import paths
from oci_specs.refusal import Refusal, printable

# Of the holder: two for each listener, and its socket (native_sched/holder/stored.c).
STORED_MAX = 2 * 1024 + 1


@click.command()
@click.option(
    "--sim",
    "cards",
    multiple=True,
    required=True,
    metavar="PROFILE[:COUNT]",
    help=f"Simulated GPUs, such as v100-16:2; may be given several times. Profiles: {profiles.LISTED}.",
)
@click.option(
    "--sim-option",
    "sim_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the simulated GPU's, such as driver-version=550.163; may be given several times.",
)
@options.root
@click.option(
    "--node-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The node's configuration.  [default: ROOT/node.toml if it is there]",
)
@click.option(
    "--runtime", default="runc", show_default=True, help="The OCI runtime below: runc, crun or a path."
)
@click.option(
    "--ready-fd",
    type=click.IntRange(min=0),
    metavar="FD",
    help="Write a line to this descriptor, and close it, when all is up.",
)
def up(
    cards: tuple[str, ...],
    sim_options: tuple[str, ...],
    state: StateDir,
    node_config: Path | None,
    runtime: str,
    ready_fd: int | None,
) -> None:
    """Run simulated GPUs and the arbiter in the foreground, until ^C."""
    if os.geteuid() != 0:
        raise Refusal(
            "not-root", "mgpu up makes containers' devices and seccomp listeners", "run it as root"
        )
    sim_cards, simcard = profiles.checked(cards), paths.simcard()
    if ready_fd is not None:
        _check_writable(ready_fd)
    state.create()
    with state.lock():
        state.remove_sockets()
        runtime_files.write(state, runtime)
        try:
            _serve(state, [simcard, "--cards", sim_cards], sim_options, node_config, ready_fd)
        finally:
            state.remove_sockets()


def _serve(
    state: StateDir,
    simcard: list[str],
    sim_options: tuple[str, ...],
    node_config: Path | None,
    ready_fd: int | None,
) -> None:
    holder = paths.libexec("mgpu-holder")
    sockets = ["--seccomp-socket", str(state.seccomp), "--mgpud-socket", str(state.holder)]
    configured = ["--node-config", str(node_config.resolve())] if node_config else []
    try:
        with (
            closing(FdStore(state.notify, STORED_MAX)) as store,
            Supervisor(state.log, lambda line: click.echo(f"mgpu: {line}", err=True)) as programs,
        ):
            programs.start(
                "mgpu-simcard",
                [*simcard, "--dir", str(state.sim), *(f"--{option}" for option in sim_options)],
            )
            mgpud = [_mgpud(), "--root", str(state.path), "--driver", "sim", *configured]
            # It outlives a holder that dies, but not its supervisor.
            mgpud += ["--end-with", str(os.getpid())]
            mgpud_log = state.log / "mgpud.log"
            mgpud_log.write_bytes(b"")
            child = ["--mgpud-log", str(mgpud_log), "--mgpud-lock", str(state.mgpud_lock)]
            child += ["--standby", "--", *mgpud]
            programs.start(
                "mgpu-holder", [holder, *sockets, *child], again=True, speaker="mgpud", store=store
            )
            _announce(state)
            _tell(ready_fd)
            try:
                programs.watch()
            except Stopped:
                _warn_of_tenants(state)
    except Stopped:
        pass
    except Ended as ended:
        if ended.tail and ended.tail[-1].startswith("mgpu: "):
            click.echo(printable(ended.tail[-1]), err=True)
            sys.exit(1)
        for line in ended.tail:
            click.echo(f"  {printable(line)}", err=True)
        raise Refusal(
            "program-ended", f"{ended}, and everything else was stopped", f"its log is {ended.log}"
        ) from ended


def _mgpud() -> str:
    beside = Path(sys.executable).with_name("mgpud")
    if not beside.exists():
        raise Refusal("not-installed", f"{beside} does not exist", "install mgpu again")
    return str(beside)


def _announce(state: StateDir) -> None:
    found = client.ask(state.control, "list")["cards"]
    for card in found:
        click.echo(f"GPU {card['index']}: {card['name']}, {card['memory_mib']} MiB, {card['uuid']}")
    click.echo(f"\nServing under {state.path}. To use it:")
    for engine, lines in engines.snippets(state):
        click.echo(f"\n{engine}")
        for line in lines:
            click.echo(f"    {line}")
    click.echo(f"\nTo look: mgpu ps --root {shlex.quote(str(state.path))}. To stop: ^C.")


def _check_writable(ready_fd: int) -> None:
    try:
        writable = fcntl.fcntl(ready_fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except (OSError, OverflowError):
        writable = False
    if not writable:
        raise Refusal(
            "bad-ready-fd",
            f"--ready-fd {ready_fd}: no descriptor that is open for writing",
            f"open it for mgpu up, as sh does with {ready_fd}>FILE",
        )


def _tell(ready_fd: int | None) -> None:
    sys.stdout.flush()
    if ready_fd is not None:
        # The waiting program may have ended meanwhile, and engines can be served all the same.
        with suppress(BrokenPipeError):
            os.write(ready_fd, b"ready\n")
        os.close(ready_fd)


def _warn_of_tenants(state: StateDir) -> None:
    try:
        left = client.ask(state.control, "list")["containers"]
    except Refusal:
        return
    if left:
        click.echo(
            f"mgpu: {len(left)} running containers hold a GPU; their GPU calls fail from now on",
            err=True,
        )

"""`mgpu run`: one container by the OCI runtime alone, no engine needed."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click

from mgpu_cli import bundle, guard, options, policies, scratch
from mgpu_cli.kernel import die_with_parent
from mgpu_cli.state import StateDir
from oci_specs import parse
from oci_specs.refusal import Refusal, quoted

# What `docker run` ends with when it has made no container.
NO_CONTAINER = 125


_OPTIONS = {
    "mgpu.dev/memory-mib": "--memory-mib",
    "mgpu.dev/gpus": "--gpus",
    "mgpu.dev/core": "--core",
    "mgpu.dev/policy": "--policy",
    "mgpu.dev/qos": "--class",
}


class _Node(NamedTuple):
    """What no option's meaning depends on."""

    aliyun_unit: str = "gib"
    visible_devices_all: str = "ignore"


class _NoContainer(Refusal):
    """Nothing of the command has run."""

    exit_status = NO_CONTAINER


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        key, separator, _ = value.partition("=")
        if not key or not separator:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
    return {key: rest for key, _, rest in (value.partition("=") for value in values)}


@click.command(
    # What follows ROOTFS is the command's, whatever it looks like.
    context_settings={"allow_interspersed_args": False},
    short_help="Run a command in a container, without an engine.",
)
@options.root
@click.option(
    "--memory-mib",
    type=int,
    help="Memory in MiB, the total over the container's GPUs: mgpu.dev/memory-mib.",
)
@click.option("--gpus", help="How many GPUs, or their UUIDs: mgpu.dev/gpus.")
@click.option(
    "--core", type=int, help="Compute in percent of one GPU, the total over the GPUs: mgpu.dev/core."
)
@click.option(
    "--policy",
    type=policies.CHOICE,
    metavar="POLICY",
    help=policies.LISTED,
)
@click.option("--class", "qos", type=click.Choice(["online", "offline"]), help="Scheduling class.")
@click.option(
    "--annotation", "annotations", multiple=True, callback=_pairs, metavar="K=V", help="Any OCI annotation."
)
@click.option("--env", multiple=True, callback=_pairs, metavar="K=V", help="A variable of the container.")
@click.option("--name", help="The container's id.  [default: a fresh one]")
@click.option(
    "--runtime-root", type=click.Path(path_type=Path), help="The OCI runtime's state.  [default: ROOT/runc]"
)
@click.argument("rootfs", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    state: StateDir,
    memory_mib: int | None,
    gpus: str | None,
    core: int | None,
    policy: str | None,
    qos: str | None,
    annotations: dict[str, str],
    env: dict[str, str],
    name: str | None,
    runtime_root: Path | None,
    rootfs: Path,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND in a container over the directory ROOTFS, which is not written to: changes stay in memory.

    The container gets what Docker would give it, but no network, and no seccomp profile beyond mgpu's own
    filter. The exit status is the command's; 125 if there was no container, as with Docker. ^C goes to
    COMMAND; without a terminal for it, a second ^C kills it.
    """
    values = (memory_mib, gpus, core, policy, qos)
    requested = {key: str(value) for key, value in zip(_OPTIONS, values, strict=True) if value is not None}
    _check(requested)
    annotations |= requested
    runtime = state.runtime
    if not runtime.exists():
        raise _NoContainer(
            "not-up",
            f"there is no {runtime}",
            f"start mgpu up --root {state.path}, or say where it runs with --root or MGPU_ROOT",
        )
    container_id = name or f"run-{secrets.token_hex(4)}"
    runtime_root = runtime_root or state.runc_root
    if (runtime_root / container_id).exists():
        raise _NoContainer(
            "name-in-use", f"a container called {quoted(container_id)} exists", "choose another --name"
        )
    with scratch.bundle_over(rootfs.resolve()) as directory:
        spec = bundle.spec(
            container_id=container_id,
            rootfs=str(directory / "rootfs"),
            args=command,
            env=env,
            annotations=annotations,
            terminal=sys.stdin.isatty(),
        )
        (directory / "config.json").write_text(json.dumps(spec))
        status = _run(runtime, runtime_root, directory, container_id)
    sys.exit(status)


def _check(requested: dict[str, str]) -> None:
    """Refusal of what the node would refuse as well, by the options that were written."""
    try:
        parse.request(requested, {}, _Node())
    except Refusal as refusal:
        message = refusal.message
        for key, option in _OPTIONS.items():
            message = message.replace(key, option)
        raise _NoContainer(refusal.code, message, refusal.hint) from refusal


def _run(runtime: Path, runtime_root: Path, directory: Path, container_id: str) -> int:
    prefix, started = [str(runtime), "--root", str(runtime_root)], directory / "pid"

    def delete() -> None:
        subprocess.run([*prefix, "delete", "--force", container_id], check=False)

    def kill() -> None:
        # There may be no container yet, or no more.
        subprocess.run([*prefix, "kill", container_id, "KILL"], stderr=subprocess.DEVNULL, check=False)

    def delete_all() -> None:
        delete()
        scratch.remove(directory)

    with guard.if_killed(delete_all):
        parent = os.getpid()
        process = subprocess.Popen(
            [*prefix, "run", "--bundle", str(directory), "--pid-file", str(started), container_id],
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
        )
        with process, _signals_forwarded(process, kill):
            status = process.wait()
        if status >= 0:
            return status if started.exists() else NO_CONTAINER
        # It was killed, and so did not delete the container.
        delete()
        return 128 - status


@contextmanager
def _signals_forwarded(process: subprocess.Popen[bytes], kill: Callable[[], None]) -> Iterator[None]:
    """Pass SIGTERM and SIGHUP on to the runtime, which tells the container; the first ^C reaches it anyway.

    A container's first process ignores a ^C that it does not handle, so the second one kills.
    """
    interrupts = 0

    def forward(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            os.write(sys.stderr.fileno(), b"mgpu: ^C once more kills the container\n")
        else:
            kill()

    handlers = {signal.SIGTERM: forward, signal.SIGHUP: forward, signal.SIGINT: interrupted}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

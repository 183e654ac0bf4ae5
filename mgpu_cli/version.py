"""`mgpu version`: what runs here, and what the kernel below it is."""

import json
import platform
import sys
from typing import Any

import click

from mgpu_cli import client, options
from mgpu_cli.state import StateDir
from oci_specs import build
from oci_specs.refusal import Refusal
from runtime_hook import holder


def _holder(state: StateDir) -> dict[str, Any] | None:
    try:
        pid = holder.status(state.holder).pid
    except Refusal:
        return None
    found, prefix = build.of_process(pid)
    return {"pid": pid, "build": found, "prefix": str(prefix)}


@click.command(short_help="Print versions of mgpu, the kernel and the driver.")
@options.root
@options.output
def version(state: StateDir, output: str) -> None:
    """Print versions of mgpu, the kernel and what runs here: the holder, mgpud and its driver."""
    health, held = client.health(state.control), _holder(state)
    if output == "json":
        facts = {
            "mgpu": build.version(),
            "build": build.build(),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "prefix": sys.prefix,
            "holder": held,
            "mgpud": health,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(f"mgpu    {build.build()}, in {sys.prefix}")
    click.echo(f"python  {platform.python_version()}")
    click.echo(f"kernel  {platform.release()}")
    if held is None:
        click.echo(f"holder  not running at {state.holder}")
    else:
        click.echo(f"holder  {held['build']}, in {held['prefix']}, pid {held['pid']}")
    if health is None:
        click.echo(f"mgpud   not running at {state.control}")
    else:
        click.echo(
            f"mgpud   {health.get('build', build.UNKNOWN)}, in {health.get('prefix', build.UNKNOWN)}, "
            f"pid {health['pid']}, "
            f"driver {health['driver']} {health['driver_version']}, "
            f"{health['cards']} GPUs, {health['containers']} containers"
        )

"""`mgpu version`: what runs here, and what the kernel below it is."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
from typing import Any

import click

from mgpu_cli import client, options
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal


def package_version() -> str:
    try:
        return importlib.metadata.version("mgpu")
    except importlib.metadata.PackageNotFoundError:
        return "not installed as a package"


def _health(state: StateDir) -> dict[str, Any] | None:
    try:
        return client.ask(state.control, "health")
    except Refusal:
        return None


@click.command(short_help="Print versions of mgpu, the kernel and the driver.")
@options.root
@options.output
def version(state: StateDir, output: str) -> None:
    """Print versions of mgpu, the kernel and, when mgpud runs, its driver."""
    health = _health(state)
    if output == "json":
        facts = {
            "mgpu": package_version(),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "prefix": sys.prefix,
            "mgpud": health,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(f"mgpu    {package_version()}")
    click.echo(f"python  {platform.python_version()}")
    click.echo(f"kernel  {platform.release()}")
    click.echo(f"prefix  {sys.prefix}")
    if health is None:
        click.echo(f"mgpud   not running at {state.control}")
    else:
        click.echo(
            f"mgpud   pid {health['pid']}, driver {health['driver']} {health['driver_version']}, "
            f"{health['cards']} cards, {health['containers']} containers"
        )

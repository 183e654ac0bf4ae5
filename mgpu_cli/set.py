"""`mgpu set CONTAINER`: what a running container was granted, changed under it."""

import click

from mgpu_cli import client, options, render
from mgpu_cli.state import StateDir


@click.command("set", short_help="Change a running container's class, share or memory.")
@click.argument("container")
@options.root
@click.option(
    "--core",
    "core_percent",
    type=click.IntRange(min=1),
    metavar="PERCENT",
    help="Compute, the total over its GPUs.",
)
@click.option("--class", "qos", type=click.Choice(["online", "offline"]), help="Scheduling class.")
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Memory, the total over its GPUs.",
)
@options.output_container
def set_container(
    container: str,
    state: StateDir,
    core_percent: int | None,
    qos: str | None,
    memory_mib: int | None,
    output: str,
) -> None:
    """Change what a running container was granted: all that is asked, or nothing.

    CONTAINER is its id, the first four characters of it or more, its grant's id (g-3), its name in Docker or
    podman, its pod's name, or NAMESPACE/POD/CONTAINER.
    What runs in it sees the new memory at once; it is never given less than it holds.
    """
    wish = {"core_percent": core_percent, "class": qos, "memory_mib": memory_mib}
    asked = {name: value for name, value in wish.items() if value is not None}
    if not asked:
        raise click.UsageError("give --core, --class or --memory")
    changed = client.ask_about(state.control, "set", container, **asked)["container"]
    if output == "json":
        render.as_json(changed)
    else:
        render.containers([changed])

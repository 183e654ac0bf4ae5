"""Options that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mgpu_cli.state import DEFAULT_ROOT, StateDir


class _StateDirType(click.ParamType[StateDir]):
    name = "directory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StateDir:
        return value if isinstance(value, StateDir) else StateDir(Path(value).resolve())


root = click.option(
    "--root",
    "state",
    type=_StateDirType(),
    envvar="MGPU_ROOT",
    default=str(DEFAULT_ROOT),
    show_default=True,
    show_envvar=True,
    help="Directory that holds mgpu's sockets and state.",
)

output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="json is the control protocol's own objects.",
)

"""Options that several subcommands share."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
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

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _InstantType(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if ago := re.fullmatch(r"(\d+)([smhd])", value):
            return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
        try:
            return datetime.fromisoformat(value).astimezone()
        except ValueError:
            self.fail(f"{value!r} is neither as 10m, 2h or 1d nor as 2026-01-02T03:04:05Z", param, ctx)


since = click.option(
    "--since", type=_InstantType(), metavar="TIME", help="Only what came then or later: 10m ago, or a time."
)

follow = click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until ^C.")

"""Options that several subcommands share."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from mgpu_cli.state import DEFAULT_ROOT, StateDir

_Command = TypeVar("_Command", bound=Callable[..., Any])


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


def json_as(schema: str) -> str:
    """schema: a file's name without its ending, and where in it."""
    name, _, part = schema.partition("#")
    return f"json: {part and f'{part} of '}oci_specs/schemas/{name}.schema.json."


def _output(of_json: str) -> Callable[[_Command], _Command]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help=of_json,
    )


output = _output("json is for programs.")
output_card, output_container, output_event, output_policy = (
    _output(json_as(schema))
    for schema in ("card", "container", "control#watch-reply", "control#policy-reply")
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

"""`mgpu doctor`: what is wrong with this node, and the line to type."""

import os
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from mgpu_cli import options, render
from mgpu_cli.doctor.examine import examine, worst
from mgpu_cli.doctor.finding import Finding, Level
from mgpu_cli.doctor.host import Host
from mgpu_cli.state import StateDir
from oci_specs.refusal import printable

MARKS = {Level.OK: "ok", Level.NOTE: "note", Level.WARN: "warn", Level.FAIL: "FAIL"}
STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARN: "yellow", Level.FAIL: "bold red"}
STATUS = {Level.OK: 0, Level.NOTE: 0, Level.WARN: 1, Level.FAIL: 2}
MARK_COLUMNS, GROUP_COLUMNS = 5, 12


@click.command(short_help="Find out what is wrong with this node.")
@options.root
@click.option(
    "--node-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The node's configuration.  [default: ROOT/node.toml if it is there]",
)
@options.output
def doctor(state: StateDir, node_config: Path | None, output: str) -> None:
    """Check the kernel, the runtimes and engines, CDI specs, the driver, mgpud, permissions and leftovers.

    Nothing is changed. Each finding has the line to type against it. The exit status is 0 if all is well, 1
    after warnings, 2 after failures.
    """
    host = Host(state=state, node_config=node_config, uid=os.geteuid())
    found = examine(host)
    if output == "json":
        render.as_json(
            [{"group": name, **each.to_json()} for name, findings in found.items() for each in findings]
        )
    else:
        # What is to be typed must not be broken where the terminal ends.
        Console(highlight=False, soft_wrap=True).print(text(found), end="")
    raise SystemExit(STATUS[worst(found)])


def text(found: dict[str, list[Finding]]) -> Text:
    """A line for each finding; below it why, and what to type."""
    lines = Text()
    for name, findings in found.items():
        shown = name
        for each in findings:
            lines.append(f"{MARKS[each.level]:<{MARK_COLUMNS}}", STYLES[each.level])
            lines.append(f"{shown:<{GROUP_COLUMNS}}{printable(each.what)}\n")
            indent = " " * (MARK_COLUMNS + GROUP_COLUMNS)
            if each.why and each.level > Level.OK:
                lines.append(f"{indent}{printable(each.why)}\n", "dim")
            if each.line:
                lines.append(f"{indent}→ {printable(each.line)}\n", "bold")
            shown = ""
    return lines

"""`mgpu logs`: what mgpud logged."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mgpu_cli import describe, names, options
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal, printable

FOLLOW_S = 0.2
_LAST_BYTES = 1 << 18
_FIELD = re.compile(r"""(\w+)=("(?:[^"\\]|\\.)*"|\S*)""")


@click.command(short_help="Show what mgpud logged.")
@click.argument("container", required=False)
@options.root
@options.since
@options.follow
@options.output
def logs(container: str | None, state: StateDir, since: datetime | None, follow: bool, output: str) -> None:
    """Show mgpud's log, or what it says of CONTAINER, which is as for mgpu describe.

    It is ROOT/log/mgpud.log of mgpu up, and else what systemd's journal has of the unit mgpud. With -o json
    each line is an object of its fields.
    """
    wanted = names.aliases(container)
    with suppress(KeyboardInterrupt):
        for line in _lines(state, follow):
            found = fields(line)
            if (wanted or since) and not is_wanted(found, wanted, since):
                continue
            if output != "json":
                click.echo(printable(line))
            elif found:
                click.echo(json.dumps(found))


def fields(line: str) -> dict[str, Any]:
    """Of a line of mgpud's, in either of its forms; empty for any other."""
    try:
        if line.startswith("{"):
            found = json.loads(line)
        else:
            pairs = dict(_FIELD.findall(line))
            found = {name: json.loads(of) if of.startswith('"') else of for name, of in pairs.items()}
    except ValueError:
        return {}
    return found if isinstance(found, dict) and {"time", "event"} <= found.keys() else {}


def is_wanted(found: dict[str, Any], wanted: set[str], since: datetime | None) -> bool:
    if not found or (since is not None and datetime.fromisoformat(found["time"]) < since):
        return False
    who = {"container_id": str(found.get("container", "")), "container": found.get("name")}
    who |= {key: found.get(key) for key in ("pod", "namespace")}
    return not wanted or any(describe.is_named(who, each) for each in wanted)


def _lines(state: StateDir, follow: bool) -> Iterator[str]:
    path = state.log / "mgpud.log"
    if path.exists():
        return _of_file(path, follow)
    return _of_journal(path, *(["--follow", "--lines=all"] if follow else []))


def last(state: StateDir, count: int) -> list[str]:
    """At most so many lines from the end, and of a file no more than its last quarter of a MiB."""
    path = state.log / "mgpud.log"
    if not path.exists():
        return list(_of_journal(path, f"--lines={count}"))
    with path.open("rb") as file:
        start = file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read(_LAST_BYTES).decode(errors="replace").splitlines()
    # The first one may have been cut.
    return lines[1 if start else 0 :][-count:]


def _of_file(path: Path, follow: bool) -> Iterator[str]:
    with path.open(errors="replace") as file:
        part = ""
        while True:
            part += file.readline()
            if part.endswith("\n"):
                yield part.rstrip("\n")
                part = ""
            elif not follow:
                return
            else:
                time.sleep(FOLLOW_S)


def _of_journal(path: Path, *more: str) -> Iterator[str]:
    journalctl = shutil.which("journalctl")
    if journalctl is None:
        raise Refusal(
            "no-log",
            f"there is no {path}, and no journalctl",
            "say where mgpu up runs with --root or MGPU_ROOT; in a cluster, kubectl logs has it",
        )
    argv = [journalctl, "--unit=mgpud", "--output=cat", "--no-pager", "--quiet"]
    with subprocess.Popen([*argv, *more], stdout=subprocess.PIPE, text=True, errors="replace") as journal:
        assert journal.stdout is not None
        try:
            yield from (line.rstrip("\n") for line in journal.stdout)
        finally:
            journal.terminate()

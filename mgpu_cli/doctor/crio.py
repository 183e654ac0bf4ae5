"""CRI-O, by the configuration that its program prints. It hands all of a pod's annotations on."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

from mgpu_cli.doctor.engines import is_ours
from mgpu_cli.doctor.finding import Finding, Group, fail, ok, warn
from mgpu_cli.doctor.host import Host, NoAnswerError


def registered(host: Host) -> Iterator[Finding]:
    program = host.which("crio")
    if program is None:
        return
    try:
        config = tomllib.loads(host.run([program, "config"]))
    except (NoAnswerError, tomllib.TOMLDecodeError) as error:
        yield warn("crio-config", f"CRI-O does not take its configuration: {error}", "", "crio config")
        return
    handlers = config.get("crio", {}).get("runtime", {}).get("runtimes", {})
    ours = {
        name: entry["runtime_path"] for name, entry in handlers.items() if is_ours(entry.get("runtime_path"))
    }
    if not ours:
        yield warn(
            "crio-handler",
            "CRI-O has no handler of mgpu's",
            "pods cannot have a share of a GPU",
            "mgpu install crio",
        )
    for name, path in ours.items():
        if host.is_program(path):
            yield ok("crio-handler", f"CRI-O has mgpu as the handler {name}")
        else:
            yield fail(
                "crio-handler-path",
                f"CRI-O's handler {name} is {path}, which is not there",
                "pods with it do not start",
                "mgpu install crio",
            )


GROUP = Group("crio", (registered,))

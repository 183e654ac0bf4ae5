"""The CDI specs from which a container gets its device nodes and libraries."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from mgpu_cli.doctor.finding import Finding, Group, fail, note, ok
from mgpu_cli.doctor.host import Host
from oci_specs import cdi
from oci_specs.refusal import Refusal

KINDS = {"sim": "sim.mgpu.dev/gpu", "nvidia": "nvidia.com/gpu"}
GENERATE = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


def _directories(host: Host) -> list[str]:
    """As mgpud has them: its own, then those of node.toml."""
    named: object = list(cdi.DIRECTORIES)
    try:
        text = host.text(host.node_config or host.state.path / "node.toml")
        named = tomllib.loads(text or "").get("cdi_dirs", named)
    except tomllib.TOMLDecodeError:
        pass  # mgpud says so when it starts
    folders = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
    return [os.fspath(host.path(each)) for each in (os.fspath(host.state.cdi), *folders)]


def specs(host: Host) -> Iterator[Finding]:
    directories = _directories(host)
    for directory in directories:
        if Path(directory).is_dir():
            yield from _broken(directory)
    kind = KINDS.get(host.driver)
    if kind is None:
        return
    try:
        names = cdi.Registry.load(directories).names(kind)
    except Refusal:
        return  # said above
    if not names:
        yield fail(
            "cdi-none",
            f"no CDI spec defines {kind}",
            "mgpud refuses every container that asks for a GPU",
            GENERATE if host.driver == "nvidia" else "start mgpu up again, which writes it",
        )
        return
    cards = host.health["cards"] if isinstance(host.health, dict) else 0
    yield ok("cdi-specs", f"CDI specs define {len(names)} devices of {kind}", ", ".join(names))
    if len([name for name in names if name != "all"]) < cards:
        yield note(
            "cdi-fewer", f"the CDI specs name fewer devices than there are cards ({cards})", "", GENERATE
        )


def _broken(directory: str) -> Iterator[Finding]:
    try:
        cdi.Registry.load([directory])
    except Refusal as refusal:
        yield fail(
            "cdi-broken", refusal.message, "mgpud refuses every container while it is there", GENERATE
        )


GROUP = Group("cdi", (specs,))

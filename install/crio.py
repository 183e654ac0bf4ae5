"""CRI-O: a runtime handler in a drop-in.

There is no list of annotations to write: CRI-O hands all of a pod's on, and its allowed_annotations takes
only values of its own (crio.conf(5)); with any other one it does not start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from install import drop_in
from install.change import Target
from install.engine import Engine, Intent, always
from install.parts import HANDLER, RUNTIME_CLASS, Parts

CONFIG = Path("/etc/crio/crio.conf.d/99-mgpu.conf")
KEYS = ("crio", "runtime", "runtimes", HANDLER)
# Where runc keeps its own state by default.
RUNTIME_ROOT = "/run/runc"


def targets(parts: Parts, intent: Intent) -> Sequence[Target]:
    table = {"runtime_path": parts.runtime, "runtime_type": "oci", "runtime_root": RUNTIME_ROOT}
    return (drop_in.target(intent.config or CONFIG, KEYS, table, "mgpu uninstall crio"),)


ENGINE = Engine(
    name="crio",
    program="crio",
    config=CONFIG,
    targets=targets,
    restart=("systemctl restart crio",),
    after=always(
        RUNTIME_CLASS,
    ),
    limits=(
        "no test of mgpu's has run a CRI-O: its configuration is checked against what crio.conf(5) documents",
    ),
)

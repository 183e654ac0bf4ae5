"""CRI-O: a runtime handler in a drop-in.

There is no list of annotations to write: CRI-O hands all of a pod's on, and its allowed_annotations takes
only values of its own (crio.conf(5)); with any other one it does not start.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from install import drop_in
from install.change import Target
from install.engine import Engine, Intent, always, program_path
from install.parts import HANDLER, RUNTIME_CLASS, Parts
from oci_specs.refusal import Refusal

CONFIG = Path("/etc/crio/crio.conf.d/99-mgpu.conf")
RUNTIME_TABLE = ("crio", "runtime")
KEYS = (*RUNTIME_TABLE, "runtimes", HANDLER)
TYPE = "oci"
# Where runc keeps its own state by default.
RUNTIME_ROOT = "/run/runc"
MONITOR = "conmon"
MONITOR_PREFIX = "monitor_"


def targets(parts: Parts, intent: Intent) -> Sequence[Target]:
    path = intent.config or CONFIG
    table = partial(_handler, parts.runtime, path)
    # CRI-O reads whatever lies in the folder, under any name.
    backups = path.parent.parent if path.parent.name == CONFIG.parent.name else None
    return (drop_in.target(path, KEYS, table, "mgpu uninstall crio", backups=backups),)


def _handler(runtime: str, own: Path) -> dict[str, Any]:
    return {
        "runtime_path": runtime,
        "runtime_type": TYPE,
        "runtime_root": RUNTIME_ROOT,
        **_monitor(_runtime_tables(own)),
    }


def _monitor(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The handler's options on its monitor: the same as the node's others, whose packages have conmon beside
    PATH. A handler without a monitor keeps CRI-O from starting.
    """
    said: dict[str, Any] = {}
    handlers: dict[str, Any] = {}
    for table in tables:
        said |= table
        # Of a handler that several files have, the last counts with all that it says.
        handlers |= table.get("runtimes", {})
    # Counts for every handler.
    if said.get(MONITOR):
        return {}
    default = handlers.get(said.get("default_runtime", ""), {})
    for handler in (default, *handlers.values()):
        if handler.get("runtime_type", TYPE) in ("", TYPE) and handler.get("monitor_path"):
            return {key: value for key, value in handler.items() if key.startswith(MONITOR_PREFIX)}
    if program_path(MONITOR) is not None:
        return {}
    # CRI-O's own packages have it beside conmonrs, the monitor of handlers of type "pod".
    beside = {
        Path(each["monitor_path"]).with_name(MONITOR) for each in handlers.values() if "monitor_path" in each
    }
    for path in sorted(beside):
        if path.exists():
            return {"monitor_path": str(path)}
    raise Refusal(
        "no-monitor",
        f"{MONITOR} is not on PATH and no handler of CRI-O's says where it is: CRI-O would not start",
        f"install {MONITOR}, or set it in [crio.runtime]; nothing was changed",
    )


def _runtime_tables(own: Path) -> list[dict[str, Any]]:
    """[crio.runtime] of all files, in the order in which CRI-O reads them, without what mgpu wrote."""
    found = [drop_in.others(path, RUNTIME_TABLE) for path in _files(own)]
    return [table if isinstance(table, dict) else {} for table in found]


def _files(own: Path) -> list[Path]:
    """crio.conf and then all of crio.conf.d, whatever it is called: crio.conf.d(5)."""
    folder = own.parent if own.parent.suffix == ".d" else own.with_name(f"{own.name}.d")
    main = folder.with_suffix("")
    return [main, *sorted(path for path in folder.rglob("*") if path.is_file())]


ENGINE = Engine(
    name="crio",
    program="crio",
    config=CONFIG,
    targets=targets,
    restart=("systemctl restart crio",),
    after=always(
        RUNTIME_CLASS,
    ),
)

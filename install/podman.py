"""podman: a named OCI runtime in a drop-in of containers.conf(5), or a precreate hook for podman's own
runtimes.

Never both: the second would be handed a spec that the first has rewritten.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from install import drop_in, precreate_hook
from install.change import Target
from install.engine import Engine, Intent
from install.parts import CONF_DIR, HANDLER, RUNTIME, Parts
from oci_specs.refusal import Refusal

CONFIG = Path("/etc/containers/containers.conf.d/99-mgpu.conf")
PACKAGED = Path("/usr/share/containers/containers.conf")
DEFAULT_HOOK_DIRS = ("/usr/share/containers/oci/hooks.d",)
# podman runs hooks in the order of their files' names: the last one sees what others have added.
HOOK = CONF_DIR / "hooks.d" / "zz-mgpu.json"
# podman 5's own: containers.conf(5).
JSON_RUNTIMES = ("crun", "crun-vm", "runc", "kata", "runsc", "youki", "krun")
OURS = (HANDLER, RUNTIME)
UNINSTALL = "mgpu uninstall podman"


def targets(parts: Parts, intent: Intent) -> Sequence[Target]:
    path = intent.config or CONFIG
    table = _with_folder if by_hook(intent) else partial(_with_runtime, parts.runtime)
    return (
        drop_in.target(path, ("engine",), partial(table, path), UNINSTALL),
        precreate_hook.target(HOOK, parts.runtime, wanted=by_hook(intent)),
    )


def by_hook(intent: Intent) -> bool:
    """As asked; unasked as it is, and by a runtime where nothing is."""
    return intent.hooks if intent.hooks is not None else HOOK.exists()


def _with_runtime(runtime: str, own: Path) -> dict[str, Any]:
    """The runtime, and that it says its errors in JSON as the one below does: podman shows others raw.

    podman looks a runtime up by its name, or by that of its program.
    """
    told = [name for name in _listed("runtime_supports_json", JSON_RUNTIMES, own) if name not in OURS]
    return {"runtime_supports_json": [*told, *OURS], "runtimes": {HANDLER: [runtime]}}


def _with_folder(own: Path) -> dict[str, Any]:
    """Our folder besides those where podman looks anyway."""
    return {"hooks_dir": [*_listed("hooks_dir", DEFAULT_HOOK_DIRS, own), str(HOOK.parent)]}


def _listed(key: str, default: Sequence[str], own: Path) -> list[str]:
    """A list of podman's without the drop-in `own`: of its files, the last that has the key counts.

    Refusal where a later file has the word.
    """
    found = list(default)
    for path in _files(own):
        value = drop_in.others(path, ("engine", key))
        if value is None or value == []:
            continue
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise Refusal(
                "bad-config",
                f'{path}: "{key}" is no list of texts',
                "correct it; nothing was changed",
            )
        if path != own and path.parent == own.parent and path.name > own.name:
            raise Refusal(
                "no-place",
                f"{path} sets {key}, and podman reads it after {own}",
                f"rename it to come before {own.name}, then run this again; nothing was changed",
            )
        found = value
    return found


def _files(own: Path) -> list[Path]:
    """What podman reads, in its order: containers.conf(5)."""
    if own.parent.suffix != ".d":
        return [PACKAGED, own]
    drop_ins = {own, *own.parent.glob("*.conf")}
    return [PACKAGED, own.parent.with_suffix(""), *sorted(drop_ins)]


def after(intent: Intent) -> Sequence[str]:
    runtime = "" if by_hook(intent) else f" --runtime {HANDLER}"
    return (f"podman{runtime} run --annotation mgpu.dev/memory-mib=4096 IMAGE COMMAND",)


ENGINE = Engine(
    name="podman",
    program="podman",
    config=CONFIG,
    targets=targets,
    restart=(),
    after=after,
    limits=("containers of users other than root get no GPU: mgpud speaks with root only",),
)

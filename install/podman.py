"""podman: a named OCI runtime in a drop-in of containers.conf(5), or a precreate hook for podman's own
runtimes.

Never both: the second would be handed a spec that the first has rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from install import block, drop_in, files, precreate_hook, toml_text
from install.change import Target
from install.edit import Edited
from install.engine import Engine, Intent
from install.parts import CONF_DIR, HANDLER, Parts
from oci_specs.refusal import Refusal

CONFIG = Path("/etc/containers/containers.conf.d/99-mgpu.conf")
PACKAGED = Path("/usr/share/containers/containers.conf")
DEFAULT_HOOK_DIRS = ("/usr/share/containers/oci/hooks.d",)
# podman runs hooks in the order of their files' names: the last one sees what others have added.
HOOK = CONF_DIR / "hooks.d" / "zz-mgpu.json"
KEYS = ("engine", "runtimes")
UNINSTALL = "mgpu uninstall podman"


def targets(parts: Parts, intent: Intent) -> Sequence[Target]:
    path = intent.config or CONFIG
    hook = precreate_hook.target(HOOK, parts.runtime, wanted=by_hook(intent))
    if not by_hook(intent):
        return (drop_in.target(path, KEYS, {HANDLER: [parts.runtime]}, UNINSTALL), hook)
    # Not checked earlier, since uninstalling must not fail over the text of others.
    own = drop_in.target(path, ("engine",), {}, UNINSTALL)
    return (replace(own, add=partial(_with_folder, path=path)), hook)


def by_hook(intent: Intent) -> bool:
    """As asked; unasked as it is, and by a runtime where nothing is."""
    return intent.hooks if intent.hooks is not None else HOOK.exists()


def _with_folder(text: str | None, path: Path) -> Edited:
    """The drop-in that has podman look into our folder besides those where it looks anyway."""
    table = {"hooks_dir": [*_hook_dirs(path), str(HOOK.parent)]}
    add = drop_in.target(path, ("engine",), table, UNINSTALL).add
    return add(text)


def _hook_dirs(own: Path) -> list[str]:
    """Where podman would look without the drop-in `own`: of its files, the last that says so counts.

    Refusal where a later file has the word.
    """
    found: list[str] = list(DEFAULT_HOOK_DIRS)
    for path in _files(own):
        text = files.read_text(path) or ""
        removed = block.removed(text)
        value = toml_text.at(
            toml_text.parsed(text if removed is None else removed.text, path), ("engine", "hooks_dir")
        )
        if value is None or value == []:
            continue
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise Refusal(
                "bad-config",
                f'{path}: "hooks_dir" is not a list of paths',
                "correct it; nothing was changed",
            )
        if path != own and path.parent == own.parent and path.name > own.name:
            raise Refusal(
                "no-place",
                f"{path} sets hooks_dir, and podman reads it after {own}",
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

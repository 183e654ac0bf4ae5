"""dockerd: one entry of "runtimes" in daemon.json, which it reads again on SIGHUP."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from install import files, json_text
from install.change import Target
from install.edit import Edited, NotHere
from install.engine import Engine, Intent, always
from install.parts import HANDLER, RUNTIME, Parts
from oci_specs.refusal import Refusal, quoted

CONFIG = Path("/etc/docker/daemon.json")
PIDFILE = Path("/var/run/docker.pid")
KEYS = ("runtimes", HANDLER)


def added(text: str | None, path: Path, runtime: str) -> Edited:
    """The text of daemon.json with our runtime. Other runtimes and the default one stay as they are."""
    document = json_text.parsed(text or "", path)
    runtimes = document.get("runtimes", {})
    if not isinstance(runtimes, dict):
        raise Refusal(
            "bad-config", f'{path}: "runtimes" is not an object', "correct it; nothing was changed"
        )
    notes = []
    default = document.get("default-runtime", "runc")
    if default not in ("runc", HANDLER):
        notes.append(f"the default runtime is {quoted(default)}, and stays it: use --runtime={HANDLER}")
    entry = {"path": runtime}
    present = runtimes.get(HANDLER)
    if present == entry:
        return Edited(text, tuple(notes))
    if present is not None and not _is_ours(present):
        raise Refusal(
            "name-taken",
            f"{path} has a runtime {quoted(HANDLER)} already, and it is not a {RUNTIME}",
            "remove it, then run this again; nothing was changed",
        )
    return Edited(json_text.with_member(text or "", KEYS, entry), tuple(notes))


def _is_ours(entry: object) -> bool:
    return isinstance(entry, dict) and Path(str(entry.get("path", ""))).name == RUNTIME


def removed(text: str, path: Path) -> Edited | NotHere:
    """The text without our runtime; no text when nothing else is in it."""
    document = json_text.parsed(text, path)
    runtimes = document.get("runtimes")
    if not isinstance(runtimes, dict) or not _is_ours(runtimes.get(HANDLER)):
        return NotHere()
    left = json_text.without_member(text, KEYS)
    return Edited(left if json_text.parsed(left, path) else None)


def may_go(text: str, path: Path) -> None:
    """Refusal while ours is the default runtime."""
    if json_text.parsed(text, path).get("default-runtime") == HANDLER:
        raise Refusal(
            "is-default",
            f"{path} makes {quoted(HANDLER)} the default runtime, and dockerd would not start without it",
            'take "default-runtime" out, then run this again; nothing was changed',
        )


def targets(parts: Parts, intent: Intent) -> Sequence[Target]:
    path = intent.config or CONFIG
    return (
        Target(
            path=path,
            add=partial(added, path=path, runtime=parts.runtime),
            remove=partial(removed, path=path),
            may_go=partial(may_go, path=path),
            # JSON has no remarks: an entry like ours may have been written by hand.
            marked=False,
        ),
    )


def pidfile(intent: Intent) -> Path:
    """Where dockerd writes its pid, by the configuration."""
    path = intent.config or CONFIG
    named = json_text.parsed(files.read_text(path) or "", path).get("pidfile")
    return Path(named) if isinstance(named, str) and named else PIDFILE


ENGINE = Engine(
    name="docker",
    program="dockerd",
    config=CONFIG,
    targets=targets,
    restart=("systemctl reload docker",),
    pidfile=pidfile,
    after=always(
        f"docker run --runtime={HANDLER} -e MGPU_MEMORY_MIB=4096 -e MGPU_GPUS=1 IMAGE COMMAND",
    ),
    limits=("Docker hands no annotations on: what a container asks for is in its environment",),
)

"""What mgpu-runtime reads when an engine starts it: all engines need it."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from install import apply, files, folders, planning, podman, toml_text, whole_file
from install.change import Plan, Target
from install.engine import Engine, Intent
from install.engines import ENGINES
from install.parts import RUNTIME_CONF, Parts
from oci_specs.refusal import Refusal

# For podman's hook, which looks at the containers of every user.
MODE = 0o644


def target(parts: Parts) -> Target:
    return whole_file.target(RUNTIME_CONF, parts.runtime_conf, "mgpu uninstall all", mode=MODE)


def chosen_runtime() -> str | None:
    """The OCI runtime below that an earlier installation was told of; None without one."""
    text = files.read_text(RUNTIME_CONF)
    # What mgpu-runtime reads is a part of TOML.
    found = None if text is None else toml_text.parsed(text, RUNTIME_CONF).get("runtime")
    return found if isinstance(found, str) else None


def taken_away(parts: Parts, going: Iterable[Engine]) -> Plan:
    """Takes the file away unless an engine that is not going needs it."""
    staying = [engine for engine in ENGINES.values() if engine not in going]
    return Plan() if any(_is_pointed_at_us(each, parts) for each in staying) else _without(parts)


def with_folders(plan: Plan) -> Plan:
    """What is written down of the folders that the plan makes."""
    return folders.noted(plan, _record())


def tidied() -> None:
    """Our folders go when nothing of the operator's is in them, and those that install has made elsewhere."""
    with suppress(Refusal):
        apply.apply(folders.removed(_record(), last=not RUNTIME_CONF.exists()))
    for folder in (podman.HOOK.parent, RUNTIME_CONF.parent):
        with suppress(OSError):
            folder.rmdir()


def _record() -> Path:
    return RUNTIME_CONF.with_name("made-folders")


def _without(parts: Parts) -> Plan:
    return Plan(planning.to_uninstall([target(parts)]).changes)


def _is_pointed_at_us(engine: Engine, parts: Parts) -> bool:
    try:
        return bool(planning.to_uninstall(engine.targets(parts, Intent())).changes)
    except Refusal:
        # Its configuration cannot be read, so it may still name mgpu.
        return True

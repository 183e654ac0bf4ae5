"""containerd: a CRI handler, and the shim on its PATH."""

import functools
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from install import annotation_lists, block, files, toml_text
from install.change import Target
from install.containerd_files import CRI_SERVICE, MERGING_VERSION, Loaded, load
from install.edit import Edited, NotHere
from install.engine import Engine, Intent, always, program_path
from install.links import link
from install.parts import HANDLER, RUNTIME_CLASS, SHIM, SHIM_TYPE, Parts
from oci_specs.refusal import Refusal, quoted

CONFIG = Path("/etc/containerd/config.toml")
DROP_IN = Path("conf.d/99-mgpu.toml")
RUNC_TYPE = "io.containerd.runc.v2"
DEFAULT_HANDLER = "runc"
# From this one on tables of several files are merged.
MERGING_MAJOR = 2
UNINSTALL = "mgpu uninstall containerd"
# A file of ours where there was none: containerd 1.6 to 2.x read this version.
VERSION_LINE = "version = 2\n"
# What a handler says of a pod besides its runtime: a pod that moves to ours keeps it.
KEPT = (
    "base_runtime_spec",
    "cgroup_writable",
    "cni_conf_dir",
    "cni_max_conf_num",
    "disable_pause_image_pull",
    "io_type",
    "privileged_without_host_devices",
    "privileged_without_host_devices_all_devices_allowed",
    "sandboxer",
    "snapshotter",
)


@dataclass(frozen=True)
class Handler:
    """The table of our handler, why it is as it is, and the tables of others that must be written with it."""

    table: dict[str, Any]
    why: str
    beside: dict[str, dict[str, Any]] = field(default_factory=dict)


def handler(loaded: Loaded, parts: Parts, intent: Intent) -> Handler:
    """Ours, and the default one where no file names any: containerd 1.6 takes the first that is named for
    all.

    Without its default handler the CRI plugin does not start.
    """
    own = _own_handler(loaded, parts, intent)
    if loaded.setting("containerd", "runtimes") is not None:
        return own
    return replace(own, beside={DEFAULT_HANDLER: {"runtime_type": RUNC_TYPE}})


def _own_handler(loaded: Loaded, parts: Parts, intent: Intent) -> Handler:
    """By the shim, unless the node's cgroups are systemd's: see Refusal and `why`."""
    default = loaded.setting("containerd", "default_runtime_name") or DEFAULT_HANDLER
    beside = loaded.setting("containerd", "runtimes", str(default))
    beside = beside if isinstance(beside, dict) else {}
    options = beside.get("options", {}) if beside.get("runtime_type", RUNC_TYPE) == RUNC_TYPE else {}
    systemd = _says_systemd(options) or loaded.setting("systemd_cgroup") is True
    if intent.route == "shim" and systemd:
        raise Refusal(
            "shim-options",
            "this node's cgroups are systemd's (SystemdCgroup = true), and containerd 1.6 gives no options to a "
            f"runtime other than its own, so {SHIM_TYPE} could not be told",
            "leave --route out, or choose --route runc",
        )
    lists = {name: _joined(beside.get(name)) for name in ("pod_annotations", "container_annotations")}
    kept = {name: beside[name] for name in KEPT if name in beside}
    if intent.route == "runc" or (intent.route == "auto" and systemd):
        own = {name: value for name, value in options.items() if not isinstance(value, dict)}
        table = {
            "runtime_type": RUNC_TYPE,
            **lists,
            **kept,
            "options": {**own, "BinaryName": parts.runtime} | ({"SystemdCgroup": True} if systemd else {}),
        }
        why = (
            "containerd's own shim with mgpu-runtime as BinaryName, since SystemdCgroup is an option, and containerd "
            "1.6 gives options to its own runtime only"
            if systemd
            else "containerd's own shim with mgpu-runtime as BinaryName, as asked"
        )
        return Handler(table, why)
    return Handler({"runtime_type": SHIM_TYPE, **lists, **kept}, f"by {SHIM}")


def _joined(theirs: object) -> list[str]:
    """Our annotations, and those that the default handler hands on."""
    ours = annotation_lists.patterns()
    return ours + [each for each in theirs if each not in ours] if isinstance(theirs, list) else ours


def _says_systemd(options: object) -> bool:
    return isinstance(options, Mapping) and options.get("SystemdCgroup") is True


def added(text: str | None, path: Path, loaded: Loaded, own: Handler, first: str) -> Edited:
    """first: what a file that does not exist yet begins with."""
    edited = toml_text.with_table(
        first if text is None else text,
        path,
        (*loaded.runtimes(), HANDLER),
        own.table,
        UNINSTALL,
        beside=own.beside,
    )
    notes = [f"containerd's handler {HANDLER}: {own.why}"]
    default = loaded.setting("containerd", "default_runtime_name") or DEFAULT_HANDLER
    if default not in (DEFAULT_HANDLER, HANDLER):
        notes.append(f"the default handler is {quoted(default)}, and stays it")
    disabled = [
        name
        for document in loaded.documents.values()
        for name in document.get("disabled_plugins", [])
        if name in ("cri", CRI_SERVICE, loaded.cri)
    ]
    if disabled:
        notes.append(
            f"{path} disables the plugin {disabled[0]}: ctr and nerdctl can use mgpu, Kubernetes cannot"
        )
    return Edited(edited.text, (*notes, *edited.notes))


def removed(text: str, path: Path, first: str) -> Edited | NotHere:
    edited = toml_text.without(text, path)
    return (
        Edited(None, edited.notes) if isinstance(edited, Edited) and edited.text in ("", first) else edited
    )


def targets(parts: Parts, intent: Intent) -> Sequence[Target]:
    main = intent.config or CONFIG
    loaded = _loaded(main)
    place = _place(main, loaded)
    first = f"version = {loaded.version}\n" if place != main else VERSION_LINE

    def add(text: str | None) -> Edited:
        return added(text, place, loaded, handler(loaded, parts, intent), first)

    def may_go(text: str) -> None:
        if loaded.setting("containerd", "default_runtime_name") == HANDLER:
            raise Refusal(
                "is-default",
                f"{HANDLER} is the default_runtime_name, and containerd's CRI plugin would not start without it",
                "name another one, then run this again; nothing was changed",
            )

    return (
        Target(path=place, add=add, remove=partial(removed, path=place, first=first), may_go=may_go),
        *(_stale(path) for path in loaded.documents if path != place and _has_block(path)),
        link(intent.bin_dir / SHIM, parts.shim),
    )


def _has_block(path: Path) -> bool:
    return block.inner_of(files.read_text(path) or "") is not None


def _stale(path: Path) -> Target:
    """A file with lines of ours that no longer count, since another one has come to decide."""

    def remove(text: str | None) -> Edited:
        edited = toml_text.without(text or "", path)
        return edited if isinstance(edited, Edited) else Edited(text)

    return Target(path=path, add=remove, remove=remove)


def _loaded(main: Path) -> Loaded:
    """The configuration as it is without us, which must not depend on what we wrote ourselves."""

    def read(path: Path) -> str | None:
        text = files.read_text(path)
        own = None if text is None else block.removed(text)
        return text if own is None else own.text

    found = read if files.read(main) is not None else lambda path: VERSION_LINE
    merges = major() >= MERGING_MAJOR
    loaded = load(main, found, merges=merges)
    if merges and loaded.version < 2:
        raise Refusal(
            "old-version",
            f"{main} is of version 1, and of that containerd {major()} reads nothing about the CRI plugin",
            "write it in version 2 or 3, then run this again; nothing was changed",
        )
    return loaded


@functools.cache
def major() -> int:
    """Of the containerd on this machine; 0 where none says it."""
    program = program_path("containerd")
    if program is None:
        return 0
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r" v?(\d+)\.\d+", said)
    return int(version[1]) if version else 0


def _place(main: Path, loaded: Loaded) -> Path:
    """A file of our own where containerd reads and merges it, else the one that decides."""
    drop_in = main.parent / DROP_IN
    if loaded.version >= MERGING_VERSION and loaded.imports(drop_in):
        return drop_in
    return main if loaded.version >= MERGING_VERSION else loaded.deciding()


ENGINE = Engine(
    name="containerd",
    program="containerd",
    config=CONFIG,
    targets=targets,
    restart=("systemctl restart containerd",),
    after=always(
        f"ctr run --runtime {SHIM_TYPE} --annotation mgpu.dev/memory-mib=4096 IMAGE ID COMMAND",
        RUNTIME_CLASS,
    ),
    limits=("containerd hands on to a container only the annotations that the handler lists",),
)

"""What of a CDI spec a container gets: the nodes whose calls are mediated, and the driver's files.

nvidia-ctk writes more into it: DRM's nodes and nvidia-modeset, by which a card's memory is had that no ledger
sees, and sockets of services that work as root for whoever asks (MPS, persistence, NVLink's fabric).
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from native_sched.daemon.node import capabilities
from oci_specs import driver_capabilities
from oci_specs.reach import CDI_HOOKS, normal_path

_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")
# No file of the driver's lies below these: nodes, the kernel's own files, and sockets.
_NO_FILES = ("/dev", "/proc", "/sys", "/run", "/var/run", "/tmp")
# A driver's own root may be below /run (/run/nvidia/driver).
_NO_SOURCES = ("/dev", "/proc", "/sys")
_MINOR = re.compile(r"^Device Minor:\s*([0-9]+)", re.MULTILINE)

PROC = "/proc/driver/nvidia"


def own_nodes(minors: Iterable[int], known_capabilities: Iterable[int]) -> frozenset[str]:
    """Paths of the nodes that belong to cards with these minors and to these MIG capabilities."""
    return frozenset(
        (
            *_CONTROL,
            *(f"/dev/nvidia{minor}" for minor in minors),
            *(f"{capabilities.FOLDER}/nvidia-cap{minor}" for minor in known_capabilities),
        )
    )


def keep_own(edits: Mapping[str, Any], own: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """The edits without what is no file of the driver's and no node among `own`, and paths of the rest."""
    devices = [device for device in edits["devices"] if normal_path(device["path"]) in own]
    mounts = [mount for mount in edits["mounts"] if _is_file_of_driver(mount)]
    left_out = [device["path"] for device in edits["devices"] if device not in devices]
    left_out += [mount["destination"] for mount in edits["mounts"] if mount not in mounts]
    hooks: dict[str, list[dict[str, Any]]] = {}
    for stage, entries in edits["hooks"].items():
        kept = [hook for entry in entries if (hook := _without_links(entry, own))]
        if kept:
            hooks[stage] = kept
    return {**edits, "devices": devices, "mounts": mounts, "hooks": hooks}, sorted(set(left_out))


def keep_asked(edits: Mapping[str, Any], capabilities: Collection[str]) -> dict[str, Any]:
    """The edits without the driver's files that are for other driver capabilities."""
    mounts = [
        mount for mount in edits["mounts"] if driver_capabilities.brings(mount["destination"], capabilities)
    ]
    return {**edits, "mounts": mounts}


def _below(path: str, folders: Iterable[str]) -> bool:
    path = normal_path(path)
    return path == "/" or any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _is_file_of_driver(mount: Mapping[str, Any]) -> bool:
    return not _below(mount["destination"], _NO_FILES) and not _below(mount.get("source", ""), _NO_SOURCES)


def _without_links(hook: dict[str, Any], own: Collection[str]) -> dict[str, Any] | None:
    """A hook of NVIDIA's without its options for what is not given; None where none of them is left.

    They are "--link TARGET::LINK" of create-symlinks and "--path FOLDER" of chmod, also with "=".
    """
    if os.path.basename(hook["path"]) not in CDI_HOOKS:
        return hook
    options = list(_options(hook.get("args", [])))
    kept = [words for words in options if not _is_foreign(words, own)]
    if kept == options:
        return hook
    if not any(words[0].partition("=")[0] in ("--link", "--path") for words in kept):
        return None
    return {**hook, "args": [word for words in kept for word in words]}


def _options(args: Iterable[str]) -> Iterator[tuple[str, ...]]:
    words = iter(args)
    for word in words:
        yield (word, next(words, "")) if word in ("--link", "--path") else (word,)


def _is_foreign(words: tuple[str, ...], own: Collection[str]) -> bool:
    option, _, value = "=".join(words).partition("=")
    if option == "--link":
        value = value.rpartition("::")[2]
    elif option != "--path":
        return False
    path = normal_path(value)
    return _below(path, ("/dev",)) and not any(
        node.startswith(f"{path}/") for node in own if option == "--path"
    )


def masked(minors: Collection[int], instances: Collection[tuple[int, int]], proc: str = PROC) -> list[str]:
    """Folders of the driver in procfs that tell of other cards, and of other MIG instances.

    instances: the grant's own, (minor of the card, GPU instance); a card of which there are none is whole.
    """
    found = [
        f"{PROC}/gpus/{name}"
        for name in _names(f"{proc}/gpus")
        if _minor_of(f"{proc}/gpus/{name}") not in minors
    ]
    for name in _names(f"{proc}/capabilities"):
        minor = name.removeprefix("gpu")
        if minor == name or not minor.isdecimal():
            continue
        if int(minor) not in minors:
            found.append(f"{PROC}/capabilities/{name}")
            continue
        own = {f"gi{instance}" for card, instance in instances if card == int(minor)}
        if own:
            mig = f"capabilities/{name}/mig"
            others = [one for one in _names(f"{proc}/{mig}") if one.startswith("gi") and one not in own]
            found += [f"{PROC}/{mig}/{one}" for one in others]
    return found


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _minor_of(folder: str) -> int | None:
    try:
        with open(f"{folder}/information", encoding="ascii", errors="replace") as file:
            found = _MINOR.search(file.read())
    except OSError:
        return None
    return int(found[1]) if found else None

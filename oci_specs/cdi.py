"""CDI specs (Container Device Interface 0.3 to 1.0): from device names to changes of an OCI spec.

Read by mgpud only, which puts the result into a grant. What nvidia-ctk writes is YAML unless told otherwise.
Members that a grant has no place for (additionalGids, intelRdt, netDevices) are left aside: they give no
access to a GPU.
"""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from oci_specs.members import member_number, member_object, member_objects, member_string, member_strings
from oci_specs.reach import HOOK_STAGES
from oci_specs.refusal import Refusal, quoted

# Later ones win over earlier ones, as in the CDI specification.
DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
FILE_MAX_BYTES = 8 * 1024 * 1024

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_NODE_TYPES = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}


@dataclass(frozen=True)
class Edits:
    """OCI changes in a grant's terms: linux.devices, mounts, NAME=VALUE, and hooks by their stage."""

    devices: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    env: list[str] = field(default_factory=list)
    hooks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, other: "Edits") -> None:
        """Takes over what is not there yet: devices of one card share the control nodes."""
        for mine, theirs in ((self.devices, other.devices), (self.mounts, other.mounts)):
            mine.extend(entry for entry in theirs if entry not in mine)
        self.env.extend(entry for entry in other.env if entry not in self.env)
        for stage, hooks in other.hooks.items():
            mine = self.hooks.setdefault(stage, [])
            mine.extend(hook for hook in hooks if hook not in mine)

    def to_json(self) -> dict[str, Any]:
        """The `edits` member of a grant."""
        return {"devices": self.devices, "mounts": self.mounts, "env": self.env, "hooks": self.hooks}


@dataclass(frozen=True)
class _File:
    path: str
    priority: int
    kind: str
    edits: dict[str, Any]
    devices: dict[str, dict[str, Any]]


class Registry:
    """All devices that the CDI specs of some directories define."""

    def __init__(self, files: Iterable[_File]) -> None:
        self._devices: dict[tuple[str, str], list[_File]] = {}
        for file in files:
            for name in file.devices:
                self._devices.setdefault((file.kind, name), []).append(file)

    @classmethod
    def load(cls, directories: Sequence[str] = DIRECTORIES) -> "Registry":
        """Reads each directory's *.json and *.yaml, not its subfolders. A directory that is missing is empty.

        Refusal, naming file and reason, for one that cannot be read or is no CDI spec.
        """
        return cls(
            _read_file(path, priority)
            for priority, directory in enumerate(directories)
            for path in _spec_paths(directory)
        )

    def names(self, kind: str) -> list[str]:
        """The devices of a kind such as "nvidia.com/gpu", sorted."""
        return sorted(name for device_kind, name in self._devices if device_kind == kind)

    def sources(self, kind: str) -> list[str]:
        """The host's files that containers with devices of a kind get mounted, sorted."""
        found = set()
        for device_kind, name in self._devices:
            if device_kind == kind:
                file = self._find(kind, name)
                for edits in (file.edits, file.devices[name]):
                    found |= {member_string(mount, "hostPath") for mount in member_objects(edits, "mounts")}
        return sorted(found)

    def names_with_node(self, kind: str, path: str) -> list[str]:
        """Names of the devices whose only node under a path like /dev/nvidia0, numbered, is `path`; sorted.

        nvidia-ctk names one card by index, by UUID or by both, and "all" has every card: the node tells them
        apart.
        """
        found = []
        stem = path.rstrip("0123456789")
        for name in self.names(kind):
            file = self._find(kind, name)
            nodes = [
                member_string(node, "path") for node in member_objects(file.devices[name], "deviceNodes")
            ]
            if [node for node in nodes if re.fullmatch(re.escape(stem) + "[0-9]+", node)] == [path]:
                found.append(name)
        return found

    def edits(self, kind: str, names: Iterable[str]) -> Edits:
        """What the named devices need, each spec's common edits first and once.

        Refusal for a name that is not defined, is defined twice at one priority, or whose node is not on the
        host.
        """
        merged = Edits()
        common: set[str] = set()
        for name in names:
            file = self._find(kind, name)
            try:
                if file.path not in common:
                    common.add(file.path)
                    merged.add(_to_oci(file.edits))
                merged.add(_to_oci(file.devices[name]))
            except Refusal as error:
                raise _bad(file.path, error.message) from error
        return merged

    def _find(self, kind: str, name: str) -> _File:
        files = self._devices.get((kind, name))
        if not files:
            known = ", ".join(self.names(kind)) or "none"
            raise Refusal(
                "no-cdi-device",
                f"no CDI spec defines {quoted(f'{kind}={name}')}",
                f"run `nvidia-ctk cdi generate`; devices of that kind: {known}",
            )
        highest = max(file.priority for file in files)
        winners = [file for file in files if file.priority == highest]
        if len(winners) > 1:
            raise Refusal(
                "cdi-conflict",
                f"{quoted(f'{kind}={name}')} is defined by both {winners[0].path} and {winners[1].path}",
                "remove one of them",
            )
        return winners[0]


def _spec_paths(directory: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _bad(directory, f"cannot be read: {error.strerror}") from error
    for name in names:
        if name.endswith((".json", ".yaml")):
            yield os.path.join(directory, name)


def _read_file(path: str, priority: int) -> _File:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}") from error
    if len(data) > FILE_MAX_BYTES:
        raise _bad(path, f"is larger than {FILE_MAX_BYTES} bytes")
    try:
        content = _parse(path, data)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"cannot be parsed: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise _bad(path, "is not an object")
    try:
        return _check(path, priority, content)
    except Refusal as error:
        raise _bad(path, error.message) from error


def _parse(path: str, data: bytes) -> object:
    if path.endswith(".json"):
        parsed: object = json.loads(data)
        return parsed
    import yaml

    try:
        return yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _check(path: str, priority: int, content: dict[str, Any]) -> _File:
    """Everything that can be told without looking at the host: a broken spec is found when it is loaded."""
    version = member_string(content, "cdiVersion")
    if not re.fullmatch(r"v?[01]\.[0-9]+\.[0-9]+", version):
        raise _wrong(f'"cdiVersion" is {quoted(version)}, not 0.x.y or 1.x.y')
    kind = member_string(content, "kind")
    if not _KIND.fullmatch(kind):
        raise _wrong(f'"kind" is {quoted(kind)}, not vendor/class')
    edits = member_object(content, "containerEdits")
    _check_edits(edits)
    devices: dict[str, dict[str, Any]] = {}
    for device in member_objects(content, "devices"):
        name = member_string(device, "name")
        if not _NAME.fullmatch(name):
            raise _wrong(f"a device is named {quoted(name)}")
        if name in devices:
            raise _wrong(f"two devices are named {quoted(name)}")
        devices[name] = member_object(device, "containerEdits")
        _check_edits(devices[name])
    return _File(path, priority, kind, edits, devices)


def _check_edits(edits: dict[str, Any]) -> None:
    for entry in member_strings(edits, "env"):
        if entry.find("=") < 1:
            raise _wrong(f'"env" has {quoted(entry)}, not NAME=VALUE')
    for node in member_objects(edits, "deviceNodes"):
        _absolute(node, "path")
        if member_string(node, "hostPath"):
            _absolute(node, "hostPath")
        if member_string(node, "type") not in ("", "b", "c", "u", "p"):
            raise _wrong(f'"type" of a device node is {quoted(node["type"])}')
        if not set(member_string(node, "permissions")) <= set("rwm"):
            raise _wrong(f'"permissions" of a device node are {quoted(node["permissions"])}')
        for name in ("major", "minor", "fileMode", "uid", "gid"):
            member_number(node, name)
    for mount in member_objects(edits, "mounts"):
        _absolute(mount, "containerPath")
        if not member_string(mount, "hostPath"):
            raise _wrong('a mount has no "hostPath"')
        member_strings(mount, "options")
        member_string(mount, "type")
    for hook in member_objects(edits, "hooks"):
        if member_string(hook, "hookName") not in HOOK_STAGES:
            raise _wrong(f'"hookName" is {quoted(hook.get("hookName"))}')
        _absolute(hook, "path")
        member_strings(hook, "args")
        member_strings(hook, "env")
        member_number(hook, "timeout")


def _to_oci(edits: dict[str, Any]) -> Edits:
    result = Edits(env=member_strings(edits, "env").copy())
    for node in member_objects(edits, "deviceNodes"):
        result.devices.append(_device(node))
    for mount in member_objects(edits, "mounts"):
        # A mount without a type has crun end on a NULL pointer, where it joins another's user namespace.
        entry = {"destination": mount["containerPath"], "source": mount["hostPath"], "type": "bind"}
        entry |= {name: mount[name] for name in ("type", "options") if mount.get(name)}
        result.mounts.append(entry)
    for hook in member_objects(edits, "hooks"):
        entry = {"path": hook["path"]}
        entry |= {name: hook[name] for name in ("args", "env", "timeout") if hook.get(name)}
        result.hooks.setdefault(hook["hookName"], []).append(entry)
    return result


def _device(node: dict[str, Any]) -> dict[str, Any]:
    """An entry of linux.devices, and hostPath where the spec has it. Type and numbers that the spec leaves
    out are those of the host's node.
    """
    device = {"path": node["path"], "type": node.get("type") or "", "major": node.get("major") or 0}
    device["minor"] = node.get("minor") or 0
    if not device["type"] or (device["major"] == 0 and device["type"] != "p"):
        _fill(device, node.get("hostPath") or node["path"])
    for name in ("fileMode", "uid", "gid", "hostPath"):
        if node.get(name) not in (None, ""):
            device[name] = node[name]
    return device


def _fill(device: dict[str, Any], host_path: str) -> None:
    try:
        status = os.stat(host_path)
    except OSError as error:
        raise _wrong(f"the device node {host_path}: {error.strerror}") from error
    found = _NODE_TYPES.get(stat.S_IFMT(status.st_mode))
    if found is None or (device["type"] not in ("", found) and (device["type"], found) != ("u", "c")):
        raise _wrong(f"{host_path} is not a device node of type {device['type'] or 'c, b or p'}")
    device["type"] = device["type"] or found
    if found != "p":
        device["major"], device["minor"] = os.major(status.st_rdev), os.minor(status.st_rdev)


def _absolute(parent: dict[str, Any], name: str) -> None:
    if not member_string(parent, name).startswith("/"):
        raise _wrong(f'"{name}" is {quoted(parent.get(name))}, not an absolute path')


def _wrong(what: str) -> Refusal:
    return Refusal("bad-cdi-spec", what, "")


def _bad(path: str, what: str) -> Refusal:
    return Refusal(
        "bad-cdi-spec", f"CDI spec {path}: {what}", "write it again, as with `nvidia-ctk cdi generate`"
    )

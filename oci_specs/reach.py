"""Which ways lead from a container, as its OCI spec stands, to an NVIDIA device node of the host.

The names of the nodes and the character majors are those of the NVIDIA driver: 195 is fixed (nvidia0…,
nvidiactl, nvidia-modeset), the others are given out at load time and are found by name in /proc/devices.
"""

from __future__ import annotations

import os

from oci_specs.members import member_number, member_object, member_objects, member_string, member_strings
from oci_specs.refusal import Refusal, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

NVIDIA_MAJOR = 195
# DRM's nodes, card0 and renderD128 and the like, are of whatever driver made them.
DRM_MAJOR = 226
# NVIDIA's own injectors, by the program's file name: what the legacy hook and CDI specs of nvidia-ctk put
# into specs.
NVIDIA_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
CDI_HOOKS = ("nvidia-ctk", "nvidia-cdi-hook")
# user_namespaces(7): the namespace that a machine starts with.
INITIAL_UID_MAP = [b"0", b"0", b"4294967295"]
# Capabilities that amount to the host, outside of a user namespace: docs/boundary.md has the same table.
# MKNOD is none of them: it opens nothing beside device rules that are closed.
HOST_CAPABILITIES = {
    "CAP_SYS_PTRACE": "at each exec it could seize the runtime's process, which has no filter yet",
    "CAP_SYS_ADMIN": "it mounts a procfs of its own, and writes into core_pattern a program that the kernel starts",
    "CAP_SYS_MODULE": "it loads code into the kernel",
    "CAP_SYS_RAWIO": "it reaches I/O ports and physical memory",
    "CAP_BPF": "its programs run in the kernel, which others' memory is open to",
    "CAP_DAC_READ_SEARCH": "it opens files of the host by their handles (open_by_handle_at)",
}
CAPABILITY_SETS = ("ambient", "bounding", "effective", "inheritable", "permitted")
HOOK_STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")

_NODE_PREFIX = "/dev/nvidia"
_DRM_FOLDER = "/dev/dri"
PROC_PREFIX = "/proc/driver/nvidia"
# cgroups(7): in the root of version 2 alone.
_ONE_HIERARCHY = "/sys/fs/cgroup/cgroup.controllers"
_VERSION_TIMEOUT_SECONDS = 10
_NUMBER_BITS, _SIGN = (1 << 32) - 1, 1 << 31


class Host:
    """What has to be looked up on the host. Tests give another."""

    def __init__(self, runtime: str = "") -> None:
        """runtime: the path of the OCI runtime that gets the spec, "" where that is not known."""
        self._runtime = runtime
        self._majors: frozenset[int] | None = None
        self._drm_minors: frozenset[int] | None = None
        self._any_type_keeps_numbers: bool | None = None

    def majors(self) -> frozenset[int]:
        """Character majors of NVIDIA's driver: nvidia, nvidia-uvm, nvidia-caps and the like."""
        if self._majors is None:
            try:
                # Bytes: a text file's codec is one more import on every container start.
                with open("/proc/devices", "rb") as devices:
                    self._majors = nvidia_majors(devices.read().decode("ascii", "replace"))
            except OSError:
                self._majors = frozenset((NVIDIA_MAJOR,))
        return self._majors

    def drm_minors(self) -> frozenset[int]:
        """Minors of the DRM nodes that are NVIDIA's: by them memory of a card is had past any ledger."""
        if self._drm_minors is None:
            self._drm_minors = nvidia_drm_minors("/sys/dev/char")
        return self._drm_minors

    def resolve(self, path: str) -> str:
        """path without symbolic links. Refusal when no file can have such a name."""
        try:
            return os.path.realpath(path)
        except ValueError:
            raise Refusal(
                "bad-spec", f"{quoted(path)} is not a path", "give a spec that follows its schema"
            ) from None

    def character_major(self, path: str) -> int | None:
        """The major of the character device at path, or None."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        # S_IFMT and S_IFCHR of stat(7); the module stat is one more import on every container start.
        return os.major(status.st_rdev) if status.st_mode & 0o170000 == 0o020000 else None

    def is_rootless(self) -> bool:
        """Whether this engine is not root's: its containers reach what its user does."""
        with open("/proc/self/uid_map", "rb") as uid_map:
            return os.geteuid() != 0 or uid_map.read().split() != INITIAL_UID_MAP

    def any_type_keeps_numbers(self) -> bool:
        """Whether a device rule that allows type "a" opens those with its numbers alone: by crun under one
        hierarchy of cgroups. By runc, and by version 1 of cgroups, it opens all.
        """
        if self._any_type_keeps_numbers is None:
            self._any_type_keeps_numbers = os.path.exists(_ONE_HIERARCHY) and _is_crun(self._runtime)
        return self._any_type_keeps_numbers

    def is_own_pid_namespace(self, path: str) -> bool:
        """Whether a pid namespace that a spec joins by path is ours; "" stands for a new one."""
        if not path:
            return False
        try:
            return os.path.samefile(path, "/proc/self/ns/pid")
        except (OSError, ValueError):
            return False


def _is_crun(runtime: str) -> bool:
    """By what it says of itself: any program may have its name."""
    # Such rules are rare: no other container pays for the question.
    import subprocess

    try:
        said = subprocess.run(
            [runtime, "--version"], capture_output=True, check=False, timeout=_VERSION_TIMEOUT_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    return said.startswith(b"crun version ")


def nvidia_majors(proc_devices: str) -> frozenset[int]:
    """Character majors named "nvidia…" in the text of /proc/devices; always with 195."""
    found = {NVIDIA_MAJOR}
    for line in proc_devices.partition("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdigit() and name.startswith("nvidia"):
            found.add(int(number))
    return frozenset(found)


def nvidia_drm_minors(sys_dev_char: str) -> frozenset[int]:
    """Minors of DRM nodes whose card has a driver named "nvidia…"; sys_dev_char: /sys/dev/char."""
    found = set()
    try:
        names = os.listdir(sys_dev_char)
    except OSError:
        return frozenset()
    for name in names:
        major, _, minor = name.partition(":")
        if major == str(DRM_MAJOR) and minor.isdigit():
            driver = os.path.realpath(f"{sys_dev_char}/{name}/device/driver")
            if os.path.basename(driver).startswith("nvidia"):
                found.add(int(minor))
    return frozenset(found)


def is_nvidia_path(path: str) -> bool:
    """Whether path names an NVIDIA node, or a folder of them such as /dev/nvidia-caps."""
    return normal_path(path).startswith(_NODE_PREFIX)


def is_nvidia_device(device: Mapping[str, Any], host: Host) -> bool:
    """Whether an entry of linux.devices is an NVIDIA node, by name or by number.

    By name alone as well: simulated cards have nodes of the null device under the driver's names.
    """
    if is_nvidia_path(member_string(device, "path")):
        return True
    return _is_nvidia_number(device, host)


def is_nvidia_rule(rule: Mapping[str, Any], host: Host) -> bool:
    """Whether an entry of linux.resources.devices is about NVIDIA nodes and nothing else."""
    return _is_nvidia_number(rule, host)


def _is_nvidia_number(entry: Mapping[str, Any], host: Host) -> bool:
    major = member_number(entry, "major")
    if major is None or member_string(entry, "type") not in ("c", "u"):
        return False
    if major == DRM_MAJOR:
        return member_number(entry, "minor") in host.drm_minors()
    return major in host.majors()


def is_nvidia_mount(mount: Mapping[str, Any], bundle: str, host: Host) -> bool:
    """Whether a mount brings in an NVIDIA node or the driver's procfs files, and nothing else."""
    source = _bind_source(mount, bundle, host)
    if source is None:
        return False
    major = host.character_major(source)
    if major == DRM_MAJOR or source.startswith(f"{_DRM_FOLDER}/"):
        return _is_nvidia_drm(source, host)
    return source.startswith((_NODE_PREFIX, PROC_PREFIX)) or major in host.majors()


def _is_nvidia_drm(source: str, host: Host) -> bool:
    """DRM's own names end in the minor number; a node by another name may be anybody's."""
    name = source.removeprefix(f"{_DRM_FOLDER}/")
    minor = name.removeprefix("renderD").removeprefix("card")
    minors = host.drm_minors()
    return bool(minors) and (name == source or not minor.isdigit() or int(minor) in minors)


def injector(hook: Mapping[str, Any]) -> str | None:
    """The name of the NVIDIA injector that an OCI hook runs, or None."""
    name = os.path.basename(member_string(hook, "path"))
    return name if name in NVIDIA_HOOKS or name in CDI_HOOKS else None


def reach(spec: Mapping[str, Any], bundle: str, host: Host) -> list[dict[str, str]]:
    """Every way that spec has to an NVIDIA node, as {"how": …, "detail": text}.

    how is "device", "mount", "cdi" or "hook" for what a grant takes out and replaces, and "cgroup" (device
    rules open to NVIDIA's numbers) or "tree" (a folder of devices mounted whole) for what stays open beside a
    grant. bundle is what relative mount sources are relative to. Refusal when the spec's members have wrong
    types.
    """
    return [{"how": how, "detail": detail} for how, detail in _ways(spec, bundle, host)]


def others_processes(spec: Mapping[str, Any], host: Host) -> list[dict[str, str]]:
    """The ways of a container to processes without its filter, which could call the driver for it, and to the
    host.

    Only of interest beside a request for a GPU: without one such containers are nothing to us.
    """
    linux = member_object(spec, "linux")
    found = []
    paths = [
        member_string(namespace, "path")
        for namespace in member_objects(linux, "namespaces")
        if member_string(namespace, "type") == "pid"
    ]
    if all(host.is_own_pid_namespace(path) for path in paths):
        found.append({"how": "hostpid", "detail": "the host's pid namespace"})
    elif any(paths):
        # A container without a grant there could take the open files of this one's processes.
        found.append({"how": "hostpid", "detail": "a pid namespace that it shares with other containers"})
    if not has_user_namespace(linux):
        found += [{"how": "capability", "detail": name} for name in _host_capabilities(spec)]
    return found


def _host_capabilities(spec: Mapping[str, Any]) -> list[str]:
    """Also those that crun knows by another case; one that it knows by its number may be any."""
    sets = member_object(member_object(spec, "process"), "capabilities")
    has = {name.upper() for kind in CAPABILITY_SETS for name in member_strings(sets, kind)}
    numbers = sorted(name for name in has if not name.startswith("CAP_"))
    return [name for name in HOST_CAPABILITIES if name in has] + numbers


def _ways(spec: Mapping[str, Any], bundle: str, host: Host) -> Iterator[tuple[str, str]]:
    linux = member_object(spec, "linux")
    for device in member_objects(linux, "devices"):
        if is_nvidia_device(device, host):
            yield "device", member_string(device, "path")
    rules = member_objects(member_object(linux, "resources"), "devices")
    others = [rule for rule in rules if not (rule.get("allow") is True and is_nvidia_rule(rule, host))]
    # In a user namespace no nodes are made, but one that others made can be in any folder. podman 5 writes no
    # rules there, and a grant brings them (edits.py). Engines of users could not enforce any.
    if not has_user_namespace(linux) or (rules and not host.is_rootless()):
        if (words := _open_rule(others, host)) is not None:
            yield "cgroup", words
        elif (words := _open_rule(rules, host)) is not None:
            yield "device", words
    for mount in member_objects(spec, "mounts"):
        source = _reaching_source(mount, bundle, host)
        if source is not None:
            how = "mount" if is_nvidia_mount(mount, bundle, host) else "tree"
            yield how, f"{source} on {member_string(mount, 'destination')}"
    hooks = member_object(spec, "hooks")
    for stage in HOOK_STAGES:
        for hook in member_objects(hooks, stage):
            name = injector(hook)
            if name is not None:
                yield ("cdi" if name in CDI_HOOKS else "hook"), f"{stage} hook {name}"


def has_user_namespace(linux: Mapping[str, Any]) -> bool:
    """Nothing in a user namespace of its own can make device nodes (mknod(2)), whatever the rules."""
    return any(
        member_string(namespace, "type") == "user" for namespace in member_objects(linux, "namespaces")
    )


def _open_rule(rules: list[dict[str, Any]], host: Host) -> str | None:
    """The device rule, in words, by which the container could open NVIDIA nodes of its own; else None."""
    if not rules:
        # runc then denies what it does not list itself, but crun leaves the cgroup as open as its parent.
        return "no device rules"
    every: list[tuple[int, int | None]] = [(major, None) for major in sorted(host.majors())]
    for major, minor in every + [(DRM_MAJOR, minor) for minor in sorted(host.drm_minors())]:
        verdict: str | None = None
        # As in the kernel: the last rule that covers a device decides.
        for rule in rules:
            if rule.get("allow") is True:
                if _opens(rule, major, minor) or (
                    _is_of_any_type(rule) and not host.any_type_keeps_numbers()
                ):
                    verdict = _words(rule)
            elif _closes(rule, major, minor):
                verdict = None
        if verdict is not None:
            return verdict
    return None


def _is_of_any_type(rule: Mapping[str, Any]) -> bool:
    return member_string(rule, "type") in ("", "a")


def _opens(rule: Mapping[str, Any], major: int, minor: int | None) -> bool:
    """Whether a rule that allows is about opening character devices of this major: the one, or without a
    minor any. Of its numbers the programs that runtimes attach have 32 bits, and a negative one is any.
    """

    def may_mean(name: str, wanted: int) -> bool:
        number = member_number(rule, name)
        return number is None or number < 0 or number & _SIGN != 0 or number & _NUMBER_BITS == wanted

    return (
        bool({"r", "w"} & set(_access(rule)))
        and (_is_of_any_type(rule) or member_string(rule, "type") in ("c", "u"))
        and may_mean("major", major)
        and (minor is None or may_mean("minor", minor))
    )


def _closes(rule: Mapping[str, Any], major: int, minor: int | None) -> bool:
    """Whether a rule that denies leaves no way to open such a device."""
    return (
        {"r", "w"} <= set(_access(rule))
        and (_is_of_any_type(rule) or member_string(rule, "type") in ("c", "u"))
        and member_number(rule, "major") in (None, -1, major)
        and member_number(rule, "minor") in (None, -1, minor)
    )


def _access(rule: Mapping[str, Any]) -> str:
    return member_string(rule, "access") or "rwm"


def _words(rule: Mapping[str, Any]) -> str:
    kind = member_string(rule, "type") or "a"
    numbers = [member_number(rule, name) for name in ("major", "minor")]
    shown = ":".join("*" if number in (None, -1) else str(number) for number in numbers)
    return f"device rule {kind} {shown} {_access(rule)}"


def _reaching_source(mount: Mapping[str, Any], bundle: str, host: Host) -> str | None:
    """The mount's source if NVIDIA nodes, or a folder that has them somewhere below, come with it."""
    if member_string(mount, "type") == "devtmpfs":
        return "devtmpfs"
    source = _bind_source(mount, bundle, host)
    if source is None:
        return None
    if source in ("/", "/dev") or is_nvidia_mount(mount, bundle, host):
        return source
    if source == _DRM_FOLDER and host.drm_minors():
        return source
    return None


def _bind_source(mount: Mapping[str, Any], bundle: str, host: Host) -> str | None:
    """The real path of a bind mount's source; None for other mounts. Type or options tell."""
    if member_string(mount, "type") != "bind" and not {"bind", "rbind"} & set(
        member_strings(mount, "options")
    ):
        return None
    return normal_path(host.resolve(os.path.join(bundle, member_string(mount, "source"))))


def normal_path(path: str) -> str:
    """path without "..", "." and repeated slashes; POSIX leaves two leading slashes alone, the kernel does
    not.
    """
    return os.path.normpath("/" + path.lstrip("/")) if path.startswith("/") else path

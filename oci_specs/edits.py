"""How a grant changes a container's OCI spec.

Pure but for looking at mount sources through `Host`. The spec that comes in is not changed; what the grant
does not touch is carried over as it is and in its order, known to us or not.
"""

from __future__ import annotations

from oci_specs.members import member_object, member_objects, member_string, member_strings
from oci_specs.reach import (
    DRM_MAJOR,
    HOOK_STAGES,
    PROC_PREFIX,
    has_user_namespace,
    injector,
    is_nvidia_device,
    is_nvidia_mount,
    is_nvidia_rule,
    normal_path,
)
from oci_specs.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from oci_specs.reach import Host

# Stands in for a simulated card.
NULL_DEVICE = (1, 3)
ORIGINAL_SHA256 = "dev.mgpu.original-sha256"
# Of the rewritten text itself, with zeros in its own place.
WRITTEN_SHA256 = "dev.mgpu.written-sha256"
# Of the members below as they were written.
OWN_SHA256 = "dev.mgpu.own-sha256"
# What apply() writes, but for annotations.
OWN_MEMBERS = (
    ("hooks",),
    ("mounts",),
    ("process", "env"),
    ("linux", "devices"),
    ("linux", "maskedPaths"),
    ("linux", "readonlyPaths"),
    ("linux", "resources", "devices"),
    ("linux", "seccomp"),
)
# Over the two waits, for the state and for mgpud, of 10 s each that mgpu-hook has itself.
HOOK_TIMEOUT_SECONDS = 30


def apply(
    spec: Mapping[str, Any],
    grant: Mapping[str, Any],
    *,
    bundle: str,
    hook: str,
    original_sha256: str,
    host: Host,
) -> dict[str, Any]:
    """The spec of a container that was given `grant` (schemas/grant.schema.json).

    hook is the path of mgpu-hook; original_sha256 that of the bytes the spec was parsed from, kept as an
    annotation. A grant without cards gets the filter and our hooks and keeps all else: its container was let
    through by the node's config with what it had. Refusal if the spec is malformed or its seccomp profile
    cannot be rewritten.
    """
    from oci_specs.seccomp import check_annotations, rewrite

    check_annotations(member_object(spec, "annotations"))

    new = dict(spec)
    linux = new["linux"] = dict(member_object(spec, "linux"))
    if grant["cards"]:
        edits = grant["edits"]
        bound = has_user_namespace(linux)
        _give_devices(linux, edits["devices"], host, bound=bound)
        _hide(linux, edits.get("masked_paths", []))
        mounts = edits["mounts"] + ([_bound(device) for device in edits["devices"]] if bound else [])
        new["mounts"] = _mounts(spec, mounts, bundle, host)
        if "process" in spec:
            process = new["process"] = dict(member_object(spec, "process"))
            process["env"] = _env(member_strings(process, "env"), edits["env"])
    new["hooks"] = _hooks(spec, grant, hook)
    profile = member_object(linux, "seccomp") or None
    linux["seccomp"] = rewrite(profile, listener_path=grant["listener_path"], metadata=grant["nonce"])
    new["annotations"] = {**member_object(spec, "annotations"), ORIGINAL_SHA256: original_sha256}
    return new


def _bound(device: Mapping[str, Any]) -> dict[str, Any]:
    """A mount of the host's node, which a runtime cannot make in a user namespace.

    Its only option is "bind": any other has the kernel set the flags of the host's mount anew, which it
    refuses there. Refusal for a simulated card without such a node (sim/cdi.py).
    """
    if "hostPath" not in device and (device["major"], device["minor"]) == NULL_DEVICE:
        raise Refusal(
            "user-namespace",
            f"the simulated GPU has no node {device['path']} for a container in a user namespace",
            "have mgpu up keep its state on a file system that is not mounted nodev, with --root",
        )
    source = device.get("hostPath", device["path"])
    return {"destination": device["path"], "type": "bind", "source": source, "options": ["bind"]}


def _give_devices(
    linux: dict[str, Any], granted: Iterable[Mapping[str, Any]], host: Host, *, bound: bool
) -> None:
    """bound: the nodes themselves come by mounts, in a user namespace."""
    granted = list(granted)
    paths = {normal_path(device["path"]) for device in granted}
    linux["devices"] = [
        device
        for device in member_objects(linux, "devices")
        if not is_nvidia_device(device, host) and normal_path(member_string(device, "path")) not in paths
    ]
    if not bound:
        # Not a member of linux.devices.
        linux["devices"] += [{k: v for k, v in device.items() if k != "hostPath"} for device in granted]
    resources = linux["resources"] = dict(member_object(linux, "resources"))
    rules = member_objects(resources, "devices")
    if bound and not rules:
        # podman 5 writes none in a user namespace, and crun leaves such a cgroup as open as its parent.
        closed = [{"major": major} for major in sorted(host.majors())]
        closed += [{"major": DRM_MAJOR, "minor": minor} for minor in sorted(host.drm_minors())]
        rules = [{"allow": False, "type": "c", **numbers, "access": "rwm"} for numbers in closed]
    resources["devices"] = [
        rule for rule in rules if not (rule.get("allow") is True and is_nvidia_rule(rule, host))
    ]
    for device in granted:
        rule = {
            "allow": True,
            "type": device["type"],
            "major": device["major"],
            "minor": device["minor"],
            "access": "rw",
        }
        if rule not in resources["devices"]:
            resources["devices"].append(rule)


def _hide(linux: dict[str, Any], masked: list[str]) -> None:
    """The driver's procfs files tell of other cards, and the driver takes what any root writes to them
    without a capability, such as registry keys for the whole node.
    """
    for name, paths in (("readonlyPaths", [PROC_PREFIX]), ("maskedPaths", masked)):
        had = member_strings(linux, name)
        if new := [path for path in paths if path not in had]:
            linux[name] = had + new


def _mounts(
    spec: Mapping[str, Any], granted: list[dict[str, Any]], bundle: str, host: Host
) -> list[dict[str, Any]]:
    """A later mount on the same place hides the earlier one: the granted one stays."""
    taken = {normal_path(mount["destination"]) for mount in granted}
    kept = [
        mount
        for mount in member_objects(spec, "mounts")
        if normal_path(member_string(mount, "destination")) not in taken
        and not is_nvidia_mount(mount, bundle, host)
    ]
    return kept + granted


def _env(env: list[str], granted: list[str]) -> list[str]:
    names = {entry.partition("=")[0] for entry in granted}
    return [entry for entry in env if entry.partition("=")[0] not in names] + granted


def _hooks(spec: Mapping[str, Any], grant: Mapping[str, Any], program: str) -> dict[str, Any]:
    hooks = dict(member_object(spec, "hooks"))
    # Ours come first: nothing else is set up for a container that mgpud turns away.
    ours = {
        "createRuntime": _own_hook("bind", grant, program),
        "poststop": _own_hook("release", grant, program),
    }
    for stage in HOOK_STAGES:
        entries = member_objects(hooks, stage)
        if grant["cards"]:
            entries = [entry for entry in entries if injector(entry) is None]
            entries = entries + grant["edits"]["hooks"].get(stage, [])
        if stage in ours:
            entries = [ours[stage], *entries]
        if entries or stage in hooks:
            hooks[stage] = entries
    return hooks


def _own_hook(verb: str, grant: Mapping[str, Any], program: str) -> dict[str, Any]:
    return {
        "path": program,
        "args": ["mgpu-hook", verb, "--socket", grant["socket"], "--grant", grant["nonce"]],
        "timeout": HOOK_TIMEOUT_SECONDS,
    }

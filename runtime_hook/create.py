"""create and run: decide, ask mgpud, rewrite the spec, become the runtime.

The process is the one that the engine started and ends up as runc: mgpud ties its reservation to this pid.
"""

from __future__ import annotations

import os

from oci_specs.reach import Host
from oci_specs.refusal import Refusal
from runtime_hook.arguments import Create, Launch
from runtime_hook.bundle import Spec
from runtime_hook.decision import Intent, admission, rewritten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

# A release after a failure is a courtesy: mgpud notices by itself that this process is gone.
RELEASE_TIMEOUT_SECONDS = 2


def main(arguments: list[str]) -> int:
    """Becomes the runtime, or reports in one line why not and returns the exit status."""
    launch = Launch(arguments)
    try:
        if launch.filters:
            from runtime_hook import precreate

            return precreate.main(launch)
        if launch.checkpoints:
            from runtime_hook import restore

            gpus = restore.gpus_of(launch)
            if gpus is None:
                _become(launch)
            return restore.save(launch, gpus, _initial_environment())
        return _run(launch)
    except Refusal as refusal:
        failure = refusal
    except Exception as error:
        failure = Refusal(
            "internal",
            f"mgpu-runtime failed: {type(error).__name__}: {error}",
            "report this with the container's spec",
        )
    from runtime_hook.report import report

    report(failure, launch.log)
    return 1


def _run(launch: Launch) -> int:
    """The exit status of a restore; every other container is the runtime's that this process becomes."""
    create = Create(launch.command[launch.verb :])
    if create.wants_help:
        _become(launch)
    spec = _spec(create)
    host = Host(launch.command[0])
    intent = Intent(spec.content, create.bundle, host)
    if intent.is_ours:
        status = _ask(launch, create, spec, intent, host)
        if status is not None:
            return status
    # An earlier create may have rewritten the bundle under a grant that is gone.
    spec.restore()
    _become(launch)


def _spec(create: Create) -> Spec:
    try:
        return Spec(create.config)
    except Refusal as refusal:
        if not create.restores or refusal.code != "bundle-changed":
            raise
        raise Refusal(
            "no-restore",
            "the spec of the checkpoint is the one that mgpu had rewritten, as podman keeps it",
            "create the container anew, or checkpoint and restore it by containerd",
        ) from refusal


def admit(
    launch: Launch, container_id: str, bundle: str, spec: Mapping[str, Any], intent: Intent, **members: Any
) -> dict[str, Any] | None:
    """mgpud's grant for a container, None if it has no part in it. Refusal.

    members: others of the request (schemas/control.schema.json).
    """
    from runtime_hook import control

    asked = admission(container_id, bundle, spec, intent)
    reply = control.call(launch.socket, "admit", **asked, **members)
    if reply.get("action") == "pass":
        return None
    grant = reply.get("grant")
    if not isinstance(grant, dict) or not isinstance(grant.get("nonce"), str):
        raise control.bad_reply("neither a pass nor a grant", launch.socket)
    return grant


def _ask(launch: Launch, create: Create, spec: Spec, intent: Intent, host: Host) -> int | None:
    """Asks mgpud and, with a grant, rewrites the spec and becomes the runtime, or restores; None without."""
    members = {}
    if create.restores:
        from runtime_hook import restore

        members["saved"] = restore.check(launch, spec.content)
    grant = admit(launch, create.container_id, create.bundle, spec.content, intent, **members)
    if grant is None:
        return None
    try:
        return _rewrite(launch, create, spec, grant, host)
    except BaseException:
        give_back(launch, create.container_id, create.bundle, grant)
        raise


def _rewrite(launch: Launch, create: Create, spec: Spec, grant: Mapping[str, Any], host: Host) -> int:
    from runtime_hook import handing_on, targets

    new = rewritten(
        spec.content,
        spec.original,
        grant,
        bundle=create.bundle,
        hook=launch.hook,
        socket=launch.socket,
        host=host,
    )
    targets.check(new, grant["edits"]["mounts"] if grant["cards"] else [], create.bundle)
    if create.restores:
        return _restore(launch, create, spec, grant, new)
    if handing_on.may_fail(new):
        handing_on.check(launch.command[0])
    spec.replace(new)
    try:
        _become(launch)
    except BaseException:
        spec.restore()
        raise


def _restore(
    launch: Launch, create: Create, spec: Spec, grant: Mapping[str, Any], new: Mapping[str, Any]
) -> int:
    from runtime_hook import restore

    spec.replace(restore.spec_of(new, launch.hook, create.bundle))
    try:
        status = restore.run(launch, create.container_id, create.bundle, grant, _initial_environment())
    except BaseException:
        spec.restore()
        raise
    if status:
        spec.restore()
        give_back(launch, create.container_id, create.bundle, grant)
    return status


def give_back(launch: Launch, container_id: str, bundle: str, grant: Mapping[str, Any]) -> None:
    """Tells mgpud that nothing comes of a grant."""
    from runtime_hook import control

    state = {"ociVersion": "1.0.2", "id": container_id, "status": "stopped", "bundle": bundle}
    try:
        control.call(
            launch.socket,
            "release",
            timeout_seconds=RELEASE_TIMEOUT_SECONDS,
            nonce=grant["nonce"],
            state=state,
        )
    except Refusal:
        # What went wrong before is what the user has to know.
        pass


def _become(launch: Launch) -> NoReturn:
    try:
        os.execve(launch.command[0], launch.command, _initial_environment())
    except OSError as error:
        raise Refusal(
            "no-runtime", f"cannot start {launch.command[0]}: {error.strerror}", "install the runtime again"
        ) from error


def _initial_environment() -> dict[bytes, bytes]:
    """The environment that the engine gave: in a C locale, Python adds LC_CTYPE to its own (PEP 538)."""
    with open("/proc/self/environ", "rb") as environ:
        entries = environ.read().split(b"\0")
    return {
        name: value
        for name, equals, value in (entry.partition(b"=") for entry in entries)
        if equals and name
    }

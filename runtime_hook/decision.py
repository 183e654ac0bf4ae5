"""What a spec asks for, what mgpud is asked, and what becomes of the spec under its grant.

Run by mgpu-runtime's Python in the process that becomes the runtime, and by mgpud itself for a launcher that
asks it to: both say the same, in the same words.
"""

from __future__ import annotations

import os

from oci_specs import identity, vocabulary
from oci_specs.members import member_object, member_string, member_strings, member_texts
from oci_specs.reach import others_processes, reach
from runtime_hook.bundle import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from oci_specs.reach import Host


class Intent:
    """What a spec says of a GPU: annotations and environment that may ask for one, ways that lead to one."""

    __slots__ = ("annotations", "env", "is_ours", "ways")

    def __init__(self, spec: Mapping[str, Any], bundle: str, host: Host) -> None:
        self.annotations = member_texts(spec, "annotations")
        self.env = _environment(member_object(spec, "process"))
        self.ways = reach(spec, bundle, host)
        if identity.is_sandbox(self.annotations):
            # The pod's request belongs to its containers; a sandbox itself gets no way to the driver.
            self.annotations, self.env = {}, {}
        named = vocabulary.names_gpu(self.annotations, self.env)
        if named:
            self.ways += others_processes(spec, host)
        self.is_ours = named or bool(self.ways)


def admission(container_id: str, bundle: str, spec: Mapping[str, Any], intent: Intent) -> dict[str, Any]:
    """The members of an admit message besides version and verb (schemas/control.schema.json)."""
    root = member_string(member_object(spec, "root"), "path")
    seccomp = member_object(member_object(spec, "linux"), "seccomp")
    return {
        "container_id": container_id,
        "bundle": bundle,
        "rootfs": os.path.normpath(os.path.join(bundle, root)),
        "annotations": vocabulary.admission_annotations(intent.annotations),
        "env": vocabulary.admission_env(intent.env),
        "reach": intent.ways,
        "seccomp_listener": member_string(seccomp, "listenerPath") or None,
    }


def rewritten(
    content: Mapping[str, Any],
    original: bytes,
    grant: Mapping[str, Any],
    *,
    bundle: str,
    hook: str,
    socket: str,
    host: Host,
) -> dict[str, Any]:
    """The spec under the grant; original is what content was parsed from. Refusal.

    hook: mgpu-hook's path; socket: mgpud's, which the grant came from.
    """
    from oci_specs import edits

    try:
        return edits.apply(
            content, grant, bundle=bundle, hook=hook, original_sha256=digest(original), host=host
        )
    except (KeyError, TypeError, AttributeError) as error:
        from runtime_hook import control

        raise control.bad_reply(f"a malformed grant ({type(error).__name__}: {error})", socket) from error


def _environment(process: Mapping[str, Any]) -> dict[str, str]:
    """The container's variables; of repeated ones the last, as the process sees them."""
    return dict(entry.partition("=")[::2] for entry in member_strings(process, "env"))

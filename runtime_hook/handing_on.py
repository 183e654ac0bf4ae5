"""The call by which a runtime hands on a filter's listener: from 1.2 on, runc waits for its parent by
recvfrom.
"""

from __future__ import annotations

from oci_specs.members import member_object
from oci_specs.refusal import Refusal
from oci_specs.seccomp.conditions import CODE
from oci_specs.seccomp.rewrite import hands_on_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CALL = "recvfrom"
SINCE = (1, 2)
TIMEOUT_SECONDS = 10


def may_fail(spec: Mapping[str, Any]) -> bool:
    """Whether a rewritten spec's filter keeps some runtimes from handing on its listener."""
    profile = member_object(member_object(spec, "linux"), "seccomp")
    return bool(profile) and not hands_on_with(profile, CALL)


def check(runtime: str) -> None:
    """Refusal if the runtime is one of these. Its own words would name another cause."""
    # Profiles that deny this call are rare: no other container pays for the question.
    import re
    import subprocess

    try:
        said = subprocess.run(
            [runtime, "--version"], capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return
    found = re.match(r"runc version (\d+)\.(\d+)", said)
    if found and (int(found[1]), int(found[2])) >= SINCE:
        raise Refusal(
            CODE,
            f"the container's seccomp profile denies {CALL}, and runc {found[1]}.{found[2]} calls it under the filter",
            f"allow {CALL} in the profile, or have crun below mgpu-runtime",
        )

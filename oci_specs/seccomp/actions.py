"""The actions of an OCI seccomp profile, reduced to what the kernel does."""

from __future__ import annotations

from oci_specs.seccomp.conditions import refuse
from oci_specs.seccomp.refused import REFUSED_ERRNO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # The name without its prefix, and the 16 bits of data that ERRNO and TRACE carry (0 for the others).
    Action = tuple[str, int]

PREFIX = "SCMP_ACT_"
NOTIFY = PREFIX + "NOTIFY"
ERRNO = PREFIX + "ERRNO"

# The call is made in the end: by the kernel, or by it once a tracer agrees.
PERMISSIVE = frozenset(("ALLOW", "LOG", "TRACE"))
KNOWN = PERMISSIVE | {"NOTIFY", "ERRNO", "TRAP", "KILL_THREAD", "KILL_PROCESS"}
DATA_MASK = 0xFFFF


def action(holder: dict[str, Any], name: str, errno: str) -> Action:
    """What holder[name], with the optional number holder[errno], makes the kernel do."""
    value = holder.get(name)
    if not isinstance(value, str) or not value.startswith(PREFIX):
        raise refuse(f"has a {name} that is not an action")
    kind = value[len(PREFIX) :]
    if kind == "KILL":
        kind = "KILL_THREAD"
    if kind not in KNOWN:
        raise refuse(f"has a {name} that is not an action")
    if kind not in ("ERRNO", "TRACE"):
        return kind, 0
    data = holder.get(errno)
    if data is None:
        return kind, REFUSED_ERRNO
    if not isinstance(data, int) or isinstance(data, bool) or data < 0:
        raise refuse(f"has an {errno} that is not a number")
    return kind, data & DATA_MASK

"""What /proc tells of one process."""

import re

from mgpu_cli.doctor.host import Host
from runtime_hook import needs

# linux/capability.h
CAP_SYS_NICE = 23
UNLIMITED = 2**64 - 1


def capabilities(host: Host, pid: int) -> int | None:
    """Its effective capabilities as a bit set; None when it is gone."""
    return needs.capabilities(host.text(f"/proc/{pid}/status") or "")


def limit(host: Host, pid: int, name: str) -> int | None:
    """Its hard limit of that name, as /proc/PID/limits writes it; None when it is not there."""
    found = re.search(
        rf"^{name}\s+\S+\s+(\d+|unlimited)\b", host.text(f"/proc/{pid}/limits") or "", re.MULTILINE
    )
    if found is None:
        return None
    return UNLIMITED if found[1] == "unlimited" else int(found[1])

"""What /proc tells of one process."""

from __future__ import annotations

import re

from mgpu_cli.doctor.host import Host

# linux/capability.h
CAP_SYS_NICE = 23
UNLIMITED = 2**64 - 1


def capabilities(host: Host, pid: int) -> int | None:
    """Its effective capabilities as a bit set; None when it is gone."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", host.text(f"/proc/{pid}/status") or "", re.MULTILINE)
    return int(found[1], 16) if found else None


def limit(host: Host, pid: int, name: str) -> int | None:
    """Its hard limit of that name, as /proc/PID/limits writes it; None when it is not there."""
    found = re.search(
        rf"^{name}\s+\S+\s+(\d+|unlimited)\b", host.text(f"/proc/{pid}/limits") or "", re.MULTILINE
    )
    if found is None:
        return None
    return UNLIMITED if found[1] == "unlimited" else int(found[1])

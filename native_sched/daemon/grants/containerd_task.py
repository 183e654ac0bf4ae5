"""What containerd tells of a container that holds a grant."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ContainerdTask:
    """address: containerd's socket; name: by its labels, None if they tell none; runtime: such as
    io.containerd.runc.v2; task: "created", "running", "paused", "pausing", "stopped", "none" or "unknown";
    oom_kills: how often the kernel was seen to kill in it for memory of the host's.
    """

    address: str
    namespace: str
    name: str | None
    runtime: str
    task: str
    oom_kills: int = 0

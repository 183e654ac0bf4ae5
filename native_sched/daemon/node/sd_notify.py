"""What a service manager is told of mgpud, by the protocol of sd_notify(3)."""

import os
import socket
from contextlib import suppress

READY = "READY=1"
ALIVE = "WATCHDOG=1"
ENDING = "STOPPING=1"


def tell(state: str) -> None:
    """Send it if a manager wants to know. One that cannot be reached is its own fault, and says so by
    itself."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path[:1] not in ("/", "@"):
        return
    # "@" stands for the NUL byte that abstract names begin with.
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager,
    ):
        manager.sendto(state.encode(), address)

"""Other programs that hand out this node's GPUs."""

import os
import socket
from pathlib import Path

# Below kubelet's root: of NVIDIA's device plugin and of those made from it, one socket a resource
# (nvidia-gpu.sock, nvidia-mig-1g.5gb.sock), and of its DRA driver.
_SOCKETS = ("device-plugins/nvidia-*.sock", "plugins/gpu.nvidia.com/*.sock")
_TIMEOUT_S = 0.2


def nvidia_plugins(kubelet: Path) -> list[str]:
    """Paths below kubelet's root of the sockets on which such a plugin listens. What one left behind is
    none.
    """
    found = (path for pattern in _SOCKETS for path in sorted(kubelet.glob(pattern)))
    return [os.fspath(path.relative_to(kubelet)) for path in found if _listens(path)]


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_TIMEOUT_S)
        try:
            probe.connect(os.fspath(path))
        except TimeoutError:
            return True  # its backlog is full
        except OSError:
            return False
    return True

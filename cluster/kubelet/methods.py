"""kubelet's device plugin protocol as data: the paths on the wire, and what is sent and answered."""

from cluster.kubelet.generated import deviceplugin_pb2 as messages

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
# kubelet's socket in the folder where it looks for plugins' sockets, and below kubelet's root directory.
KUBELET_SOCKET = "kubelet.sock"
FOLDER = "device-plugins"

REGISTER = "/v1beta1.Registration/Register"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"

# kubelet reads messages with gRPC's own limit: a list of devices that is longer ends the plugin's connection.
LIST_MAX_BYTES = 4 << 20

__all__ = [
    "DEVICE_PLUGIN",
    "FOLDER",
    "HEALTHY",
    "KUBELET_SOCKET",
    "LIST_MAX_BYTES",
    "REGISTER",
    "UNHEALTHY",
    "VERSION",
    "messages",
]

"""An offline container with work on every kind of engine, by programs/engines.c."""

ENGINES = ("graphics", "copy", "video")
OFFLINE = {
    "MGPU_MEMORY_MIB": "2048",
    "MGPU_QOS": "offline",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,video",
}

"""Parameters of commands of nvidia-uvm."""

import struct

GPU_ONE, GPU_TWO = b"one".ljust(16, b"\0"), b"two".ljust(16, b"\0")


def map_external(
    client: int, handle: int, base: int, size: int, gpus: tuple[bytes, ...] = (GPU_ONE,), offset: int = 0
) -> bytes:
    """Parameters of MAP_EXTERNAL_ALLOCATION since 550.54."""
    attributes = b"".join(gpu + bytes(20) for gpu in gpus).ljust(256 * 36, b"\0")
    return (
        struct.pack("QQQ", base, size, offset)
        + attributes
        + struct.pack("QiIII", len(gpus), 0, client, handle, 0)
    )


def unmap_external(base: int, size: int, gpu: bytes = GPU_ONE) -> bytes:
    return struct.pack("QQ16sII", base, size, gpu, 0xFFFF, 0)


def free_range(base: int, size: int) -> bytes:
    """Parameters of UVM_FREE before 590.44."""
    return struct.pack("QQII", base, size, 0xFFFF, 0)


def register_space(client: int, handle: int, gpu: bytes = GPU_ONE) -> bytes:
    return struct.pack("16siIII", gpu, 7, client, handle, 0xFFFF)


def uvm_register_channel(client: int, channel: int) -> bytes:
    return struct.pack("16siII4xQQI4x", GPU_ONE, 0, client, channel, 0, 0, 0xFFFF)


def unregister_channel(client: int, channel: int) -> bytes:
    """Parameters before 590.44."""
    return struct.pack("16sIII", GPU_ONE, client, channel, 0xFFFF)

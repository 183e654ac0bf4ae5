"""Numbers of the resource manager's interface, and parameters of its calls."""

import struct

from tests.support import rm_interface

CTL, CARD, UVM = 0, 1, 2
MIB = 1 << 20
_NUMBER = rm_interface.numbers()
FREE, CONTROL, ALLOC, SHARE = (
    _NUMBER[f"NV_ESC_RM_{name}"] for name in ("FREE", "CONTROL", "ALLOC", "SHARE")
)
MAP, REGISTER_FD = _NUMBER["NV_ESC_RM_MAP_MEMORY"], _NUMBER["NV_ESC_REGISTER_FD"]
ALLOC_OS_EVENT, FREE_OS_EVENT = _NUMBER["NV_ESC_ALLOC_OS_EVENT"], _NUMBER["NV_ESC_FREE_OS_EVENT"]
UVM_INITIALIZE, UVM_MIGRATE = _NUMBER["UVM_INITIALIZE"], _NUMBER["UVM_MIGRATE"]
UVM_POPULATE_PAGEABLE = _NUMBER["UVM_POPULATE_PAGEABLE"]
UVM_MAP_EXTERNAL, UVM_UNMAP_EXTERNAL = _NUMBER["UVM_MAP_EXTERNAL_ALLOCATION"], _NUMBER["UVM_UNMAP_EXTERNAL"]
UVM_FREE, UVM_REGISTER_GPU_VASPACE = _NUMBER["UVM_FREE"], _NUMBER["UVM_REGISTER_GPU_VASPACE"]
UVM_REGISTER_CHANNEL, UVM_UNREGISTER_CHANNEL = (
    _NUMBER[f"UVM_{name}_CHANNEL"] for name in ("REGISTER", "UNREGISTER")
)
ROOT, DEVICE, SUBDEVICE = (
    _NUMBER[name] for name in ("NV01_ROOT_CLIENT", "NV01_DEVICE_0", "NV20_SUBDEVICE_0")
)
MEMORY_SYSTEM, MEMORY = _NUMBER["NV01_MEMORY_SYSTEM"], _NUMBER["NV01_MEMORY_LOCAL_USER"]
GROUP, HOPPER = _NUMBER["KEPLER_CHANNEL_GROUP_A"], _NUMBER["HOPPER_CHANNEL_GPFIFO_A"]
EVENT_OS, ADDRESS_SPACE = _NUMBER["NV01_EVENT_OS_EVENT"], _NUMBER["FERMI_VASPACE_A"]
VIRTUAL = _NUMBER["NV50_MEMORY_VIRTUAL"]
# What the driver takes by itself: for an address space; for a group, its context and its channels' instance
# blocks.
SPACE_MIB = 1 / 16
CARD_CONTEXT_MIB = 240
CONTEXT_MIB = CARD_CONTEXT_MIB + 129 / 16
MAP_FIXED = 0x10


def cmd(number: int, size: int) -> int:
    return 3 << 30 | size << 16 | ord("F") << 8 | number


def alloc_struct(client: int, parent: int, handle: int, class_id: int, params: int = 0) -> bytes:
    """NVOS64."""
    return struct.pack("IIIIQQIIII", client, parent, handle, class_id, 0, 0, params, 0, 0, 0)


def memory(size: int, attr: int = 0) -> bytes:
    """Parameters of class 0x40, with an owner."""
    params = bytearray(128)
    struct.pack_into("I", params, 0, 1)
    struct.pack_into("I", params, 0x18, attr)
    struct.pack_into("Q", params, 0x40, size)
    return bytes(params)


def host_memory(size: int) -> bytes:
    """Of class 0x3e."""
    return memory(size, 1 << 25)


def group(engine_type: int = 1) -> bytes:
    return struct.pack("5I", 0, 0, 0, engine_type, 0)


def channel(userd: int) -> bytes:
    params = bytearray(368)
    struct.pack_into("QII", params, 8, 4096, 16, 0)
    struct.pack_into("I", params, 0x20, userd)
    return bytes(params)

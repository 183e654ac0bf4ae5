"""Clients of NVIDIA's driver in the laboratory's guest: direct calls on its nodes, without mgpu.

Each call gives RM's status (0: OK), or a negative errno where ioctl() itself failed.
"""

import fcntl
import json
import mmap
import os
import struct
import traceback
from collections.abc import Callable
from typing import Any

from lab.tests.loaded import params_bytes
from tests.gpu import rm
from tests.support import rm_numbers as numbers

NO_GPU_ID = 0xFFFFFFFF
MIB = 1 << 20
DEVICE, SUBDEVICE, FIRST = 0xBEEF0080, 0xBEEF2080, 0xBEEF9000
VIRTUAL, SPACE = numbers.NV50_MEMORY_VIRTUAL, numbers.FERMI_VASPACE_A
OS_DESCRIPTOR = numbers.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
# Low bytes of classes.
CHANNEL_KIND, COMPUTE_KIND = numbers.AMPERE_CHANNEL_GPFIFO_A & 0xFF, numbers.AMPERE_COMPUTE_B & 0xFF
# NVOS32_ALLOC_FLAGS
LAZY, IS_VIRTUAL = numbers.NVOS32_ALLOC_FLAGS_LAZY, numbers.NVOS32_ALLOC_FLAGS_VIRTUAL
SPARSE = numbers.NVOS32_ALLOC_FLAGS_SPARSE
HOST, VIDEO = 1 << 25, 0
OWNER = 0x6D677075
# NV_VASPACE_ALLOCATION_FLAGS
EXTERNALLY_OWNED, PAGE_FAULTING = 1 << 3, 1 << 6
SHARE_ALL, SHARE_CLIENT = numbers.RS_SHARE_TYPE_ALL, numbers.RS_SHARE_TYPE_CLIENT
COMPOSE, REVOKE = numbers.RS_SHARE_ACTION_FLAG_COMPOSE, numbers.RS_SHARE_ACTION_FLAG_REVOKE
ACCESS_DUP = 1
HEAP_SIZE = numbers.NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE
HEAP_FREE = numbers.NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE


def memory(size: int, flags: int = 0, attr: int = VIDEO, vaspace: int = 0) -> bytes:
    """NV_MEMORY_ALLOCATION_PARAMS. RM takes no owner of 0 (INVALID_OWNER)."""
    params = bytearray(128)
    struct.pack_into("<III", params, 0, OWNER, 0, flags)
    struct.pack_into("<II", params, 0x18, attr, 0)
    struct.pack_into("<Q", params, 0x40, size)
    struct.pack_into("<I", params, 0x6C, vaspace)
    return bytes(params)


def vaspace(
    flags: int = EXTERNALLY_OWNED | PAGE_FAULTING, base: int = 0x1000, size: int = 0x1FFFFFB000000
) -> bytes:
    """NV_VASPACE_ALLOCATION_PARAMETERS; by default what nvidia-uvm takes."""
    return struct.pack("<IIQQQI4xQ", 0, flags, size, 0, 0, 0, base)


class Client:
    """A root client with a device and a subdevice of a card. card: RM's number of it; minor: its node's.
    ctl: its control file; -1: one of its own.
    """

    def __init__(self, attach: bool = True, card: int = 0, ctl: int = -1, minor: int = 0) -> None:
        self.number, self.minor = card, minor
        self.card = rm.node(f"nvidia{minor}") if attach else -1
        self.ctl = rm.node("nvidiactl") if ctl < 0 else ctl
        self.next = FIRST
        root = rm.alloc(0, 0, 0, rm.ROOT)
        self._must(self.make(root), "root client")
        self.root = root.u32(8)
        if attach:
            own_space = struct.pack("<II", card, self.root).ljust(56, b"\0")
            self._must(self.alloc(self.root, rm.DEVICE, own_space, DEVICE)[0], "device")
            self._must(self.alloc(DEVICE, rm.SUBDEVICE, bytes(4), SUBDEVICE)[0], "subdevice")

    @staticmethod
    def _must(status: int, what: str) -> None:
        if status:
            raise rm.RmError(what, status)

    def make(self, call: rm.Call, at: int = 0x28, fd: int = -1) -> int:
        error = rm.on_file(self.ctl if fd < 0 else fd, call)
        return -error if error else call.u32(at)

    def alloc(self, parent: int, class_id: int, params: bytes = b"", handle: int = 0) -> tuple[int, int]:
        """Status and handle."""
        if not handle:
            self.next += 1
            handle = self.next
        call = rm.alloc(self.root, parent, handle, class_id, params)
        self.params = call.params
        return self.make(call), handle

    def must_alloc(self, parent: int, class_id: int, params: bytes = b"", handle: int = 0) -> int:
        status, handle = self.alloc(parent, class_id, params, handle)
        self._must(status, f"class {class_id:#x}")
        return handle

    def memory(self, size: int, class_id: int = rm.MEMORY, **how: int) -> int:
        return self.must_alloc(DEVICE, class_id, memory(size, **how))

    def os_descriptor(self, pages: mmap.mmap, address: int) -> tuple[int, int]:
        """ALLOC_MEMORY of class 0x71 over the caller's own pages: NVOS02 and a descriptor."""
        self.next += 1
        flags = 1 << 4 | 1 << 12 | 1 << 30  # NONCONTIGUOUS, CACHED, NO_MAP
        outer = struct.pack(
            "<IIIIIIQQII iI", self.root, DEVICE, self.next, OS_DESCRIPTOR, flags, 0, address,
            len(pages) - 1, 0, 0, -1, 0,
        )  # fmt: skip
        register = rm.Call(rm.REGISTER_FD, bytearray(struct.pack("<i", self.ctl)), bytearray(), -1)
        self._must(-rm.on_file(self.card, register), "REGISTER_FD")
        call = rm.Call(rm.ALLOC_MEMORY, bytearray(outer), bytearray(), -1)
        return self.make(call, fd=self.card), self.next

    def free(self, handle: int, parent: int = DEVICE) -> int:
        outer = struct.pack("<IIII", self.root, parent, handle, 0)
        return self.make(rm.Call(rm.FREE, bytearray(outer), bytearray(), -1), 0xC)

    def control(self, thing: int, cmd: int, params: bytes, fd: int = -1) -> tuple[int, bytes]:
        call = rm.control(self.root, thing, cmd, params)
        return self.make(call, 0x1C, fd), bytes(call.params)

    def share(self, handle: int, kind: int, target: int = 0, action: int = 0, fd: int = -1) -> int:
        outer = struct.pack("<IIIIHBBI", self.root, handle, target, ACCESS_DUP, kind, action, 0, 0)
        return self.make(rm.Call(rm.SHARE, bytearray(outer), bytearray(), -1), 0x14, fd)

    def dup(self, theirs: int, handle: int, parent: int = DEVICE) -> tuple[int, int]:
        self.next += 1
        outer = struct.pack("<7I", self.root, parent, self.next, theirs, handle, 0, 0)
        return self.make(rm.Call(rm.DUP, bytearray(outer), bytearray(), -1), 0x18), self.next

    def _fb(self, *indices: int) -> tuple[int, bytes]:
        params = bytearray(params_bytes("NV2080_CTRL_CMD_FB_GET_INFO_V2"))
        struct.pack_into("<I", params, 0, len(indices))
        for i, index in enumerate(indices):
            struct.pack_into("<I", params, 4 + 8 * i, index)
        return self.control(SUBDEVICE, numbers.NV2080_CTRL_CMD_FB_GET_INFO_V2, bytes(params))

    def fb(self, *indices: int) -> list[int]:
        """FB_GET_INFO_V2, in KiB for sizes."""
        status, answer = self._fb(*indices)
        self._must(status, "FB_GET_INFO_V2")
        return [struct.unpack_from("<I", answer, 8 + 8 * i)[0] for i in range(len(indices))]

    def free_bytes(self) -> int:
        return self.fb(HEAP_FREE)[0] << 10

    def state(self) -> dict[str, int]:
        """What memory of the card and a control of it come to."""
        status, handle = self.alloc(DEVICE, rm.MEMORY, memory(MIB))
        return {"memory": status or self.free(handle), "control": self._fb(HEAP_FREE)[0]}

    def class_like(self, kind: int) -> int:
        """The newest of the card's classes whose number ends so."""
        params = bytes(params_bytes("NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2"))
        status, answer = self.control(DEVICE, numbers.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, params)
        self._must(status, "CLASSLIST_V2")
        count, *classes = struct.unpack_from(f"<{len(answer) // 4}I", answer)
        return max(int(number) for number in classes[:count] if number & 0xFF == kind)

    def pid_info(self, pid: int) -> tuple[int, int, int]:
        """Bytes that RM counts for a process: private, owned and shared, duplicated."""
        params = bytearray(14408)
        struct.pack_into("<I4xII", params, 0, 1, pid, 0)
        status, answer = self.control(SUBDEVICE, numbers.NV2080_CTRL_CMD_GPU_GET_PID_INFO, bytes(params))
        self._must(status, "GET_PID_INFO")
        return struct.unpack_from("<3Q", answer, 24)

    def gpu_ids(self) -> dict[int, int]:
        """RM's ids of the cards that are attached, by its numbers of them."""
        found = {}
        _, ids = self.control(self.root, numbers.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, bytes(128))
        for gpu_id in struct.unpack("<32I", ids):
            if gpu_id != NO_GPU_ID:
                params = struct.pack("<I", gpu_id).ljust(40, b"\0")
                status, answer = self.control(self.root, numbers.NV0000_CTRL_CMD_GPU_GET_ID_INFO, params)
                self._must(status, "ID_INFO")
                found[struct.unpack_from("<I", answer, 8)[0]] = gpu_id
        return found

    def uuid(self) -> bytes:
        """As RM keeps it: some drivers pass GET_GID_INFO on to the GSP."""
        params = struct.pack("<II", self.gpu_ids()[self.number], 2).ljust(268, b"\0")
        status, answer = self.control(self.root, numbers.NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID, params)
        self._must(status, "UUID_FROM_GPU_ID")
        return answer[8:24]

    def close(self) -> None:
        os.close(self.ctl)
        if self.card >= 0:
            os.close(self.card)


def map_status(client: Client, handle: int, fd: int, size: int = 4096) -> int:
    """RM's status of MAP_MEMORY on that file."""
    outer = struct.pack("<IIIIQQQIIiI", client.root, DEVICE, handle, 0, 0, size, 0, 0, 0, fd, 0)
    return client.make(rm.Call(rm.MAP, bytearray(outer), bytearray(), -1))


def mapped(
    client: Client, handle: int, fd: int, size: int = 4096, prot: int = mmap.PROT_READ | mmap.PROT_WRITE
) -> tuple[mmap.mmap, int]:
    """By MAP_MEMORY on that file, which is closed once it is mapped."""
    status = map_status(client, handle, fd, size)
    try:
        if status:
            raise rm.RmError("MAP_MEMORY", status)
        return mmap.mmap(fd, size, mmap.MAP_SHARED, prot), status
    finally:
        os.close(fd)


def of_card(client: Client) -> int:
    """A new file of its card's node, registered with the client's."""
    fd = rm.node(f"nvidia{client.minor}")
    register = rm.Call(rm.REGISTER_FD, bytearray(struct.pack("<i", client.ctl)), bytearray(), -1)
    assert rm.on_file(fd, register) == 0
    return fd


class Uvm:
    """A file of nvidia-uvm."""

    def __init__(self, uvm_initialize: bool = True) -> None:
        self.fd = rm.node("nvidia-uvm")
        if uvm_initialize:
            Client._must(self.call(numbers.UVM_INITIALIZE, bytearray(16), 8), "UVM_INITIALIZE")
        self.holder = -1

    def hold_memory(self) -> int:
        """UVM_MM_INITIALIZE on a second file, without which UVM takes no address space."""
        self.holder = rm.node("nvidia-uvm")
        return self.call(
            numbers.UVM_MM_INITIALIZE, bytearray(struct.pack("<iI", self.fd, 0)), 4, self.holder
        )

    def call(self, cmd: int, params: bytearray, status_at: int, fd: int = -1) -> int:
        try:
            fcntl.ioctl(self.fd if fd < 0 else fd, cmd, params, True)
        except OSError as error:
            return -(error.errno or 1)
        return int(struct.unpack_from("<I", params, status_at)[0])

    def register_gpu(self, uuid: bytes, client: Client) -> int:
        params = bytearray(struct.pack("<16sBxxxIiIII", uuid, 0, 0, -1, 0, 0, 0))
        return self.call(numbers.UVM_REGISTER_GPU, params, 36)

    def register_space(self, uuid: bytes, client: Client, vaspace: int, fd: int = -1) -> int:
        params = bytearray(struct.pack("<16siIII", uuid, client.ctl, client.root, vaspace, 0))
        return self.call(numbers.UVM_REGISTER_GPU_VASPACE, params, 28, fd)

    def create_range(self, base: int, size: int) -> int:
        return self.call(
            numbers.UVM_CREATE_EXTERNAL_RANGE, bytearray(struct.pack("<QQII", base, size, 0, 0)), 16
        )

    def map_external(
        self, uuid: bytes, client: Client, handle: int, base: int, size: int, fd: int = -1, ctl: int = -2
    ) -> int:
        """The array of GPUs in its middle is as long as the driver has it."""
        head = struct.pack("<QQQ", base, size, 0) + uuid
        end = struct.pack("<QiIII", 1, client.ctl if ctl == -2 else ctl, client.root, handle, 0)
        params = bytearray(head.ljust(params_bytes("UVM_MAP_EXTERNAL_ALLOCATION") - len(end), b"\0") + end)
        return self.call(numbers.UVM_MAP_EXTERNAL_ALLOCATION, params, len(params) - 4, fd)

    def unmap_external(self, uuid: bytes, base: int, size: int, fd: int = -1) -> int:
        return self.call(
            numbers.UVM_UNMAP_EXTERNAL, bytearray(struct.pack("<QQ16sII", base, size, uuid, 0, 0)), 32, fd
        )

    def free(self, base: int, size: int, fd: int = -1) -> int:
        return self.call(numbers.UVM_FREE, bytearray(struct.pack("<QQII", base, size, 0, 0)), 16, fd)

    def close(self) -> None:
        for fd in (self.fd, self.holder):
            if fd >= 0:
                os.close(fd)


def in_child(work: Callable[[], Any]) -> Any:
    """What it returns in a process of its own; an exception there is one here."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            said: dict[str, Any] = {"said": work()}
        except BaseException:
            said = {"failed": traceback.format_exc()}
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    answer = json.loads(text or b'{"failed": "it said nothing"}')
    if "failed" in answer:
        raise AssertionError(answer["failed"])
    return answer["said"]

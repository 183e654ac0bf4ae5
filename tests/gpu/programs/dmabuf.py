"""Memory for others: attributes, a DMA-BUF of a buffer, descriptor, fabric handle, multicast, IPC handle."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ushort, c_void_p

from report import Cuda, Report

SIZE = 2 << 20
DMA_BUF_FD, MAPPING_PCIE = 1, 1
PINNED, DEVICE, READ_WRITE = 1, 1, 3
POSIX_FD, FABRIC = 1, 8
ATTRIBUTES = {
    "unified_addressing": 41, "managed_memory": 83, "host_native_atomics": 86, "pageable_memory_access": 88,
    "concurrent_managed_access": 89, "compute_preemption": 90, "host_pointer_for_registered": 91,
    "can_flush_remote_writes": 98, "host_register": 99, "pageable_by_host_page_tables": 100,
    "managed_direct_from_host": 101, "virtual_memory_management": 102, "handle_posix_fd": 103,
    "generic_compression": 107, "rdma_with_vmm": 110, "read_only_host_register": 113, "timeline_semaphore": 114,
    "memory_pools": 115, "gpu_direct_rdma": 116, "rdma_flush_writes_options": 117, "rdma_writes_ordering": 118,
    "pool_handle_types": 119, "stream_mem_ops_64": 122, "stream_wait_value_nor": 123, "dma_buf": 124,
    "ipc_events": 125, "mem_sync_domains": 126, "tensor_map": 127, "handle_fabric": 128,
    "unified_function_pointers": 129, "numa_config": 130, "numa_id": 131, "multicast": 132, "mps": 133,
    "host_numa_id": 134, "decompress_algorithms": 136, "decompress_bytes": 137, "pci_device_id": 139,
    "host_numa_vmm": 141, "host_numa_pools": 142, "host_numa_ipc": 143, "host_pools": 144, "host_vmm": 145,
    "host_dma_buf": 146,
}  # fmt: skip


class Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class Prop(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int), ("handles", c_int), ("location", Location), ("win32", c_void_p),
        ("compression", c_ubyte), ("rdma", c_ubyte), ("usage", c_ushort), ("reserved", c_ubyte * 4),
    )  # fmt: skip


class Access(ctypes.Structure):
    _fields_ = (("location", Location), ("flags", c_int))


class Multicast(ctypes.Structure):
    """CUmulticastObjectProp."""

    _fields_ = (("devices", c_uint), ("size", c_size_t), ("handles", c_uint64), ("flags", c_uint64))


assert [ctypes.sizeof(one) for one in (Prop, Multicast, Access)] == [32, 32, 12]

report = Report("dmabuf")
location = Location(DEVICE, 0)


def start() -> Cuda:
    made = Cuda()
    made("cuInit", 0)
    context = c_void_p()
    made("cuCtxCreate_v2", byref(context), 0, 0)
    return made


def attributes() -> dict[str, object]:
    found: dict[str, object] = {}
    for name, number in ATTRIBUTES.items():
        value = c_int(-99)
        code = cuda.code("cuDeviceGetAttribute", byref(value), number, 0)
        found[name] = f"code {code}" if code else value.value
    return found


def described(fd: int) -> dict[str, object]:
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
    except OSError as error:
        size = -(error.errno or 0)
    return {"link": os.readlink(f"/proc/self/fd/{fd}"), "size": size}


def dma_buf(flags: int) -> dict[str, object]:
    fd = c_int(-1)
    cuda("cuMemGetHandleForAddressRange", byref(fd), buffer, c_size_t(SIZE), DMA_BUF_FD, c_uint64(flags))
    found = described(fd.value)
    os.close(fd.value)
    return found


def plain() -> c_uint64:
    cuda("cuMemAlloc_v2", byref(buffer), c_size_t(SIZE))
    return buffer


def sync_memops() -> str:
    one = c_uint(1)
    cuda("cuPointerSetAttribute", byref(one), 6, buffer)
    return "set"


def ipc_handle() -> str:
    handle = (c_ubyte * 64)()
    cuda("cuIpcGetMemHandle", byref(handle), buffer)
    return bytes(handle[:8]).hex()


def created(handles: int, size: int = SIZE) -> c_uint64:
    handle = c_uint64()
    prop = Prop(PINNED, handles, location)
    cuda("cuMemCreate", byref(handle), c_size_t(size), byref(prop), c_uint64(0))
    return handle


def granularity() -> int:
    size, prop = c_size_t(), Prop(PINNED, POSIX_FD, location)
    cuda("cuMemGetAllocationGranularity", byref(size), byref(prop), 0)
    return size.value


def posix_fd() -> dict[str, object]:
    """Made, exported, imported, mapped, filled, and all of it undone."""
    handle, fd = created(POSIX_FD), c_int(-1)
    cuda("cuMemExportToShareableHandle", byref(fd), handle, POSIX_FD, c_uint64(0))
    found = described(fd.value)
    other, address = c_uint64(), c_uint64()
    cuda("cuMemImportFromShareableHandle", byref(other), c_void_p(fd.value), POSIX_FD)
    cuda("cuMemAddressReserve", byref(address), c_size_t(SIZE), c_size_t(0), c_uint64(0), c_uint64(0))
    cuda("cuMemMap", address, c_size_t(SIZE), c_size_t(0), other, c_uint64(0))
    access = Access(location, READ_WRITE)
    cuda("cuMemSetAccess", address, c_size_t(SIZE), byref(access), c_size_t(1))
    cuda("cuMemsetD8_v2", address, c_ubyte(7), c_size_t(SIZE))
    back = (c_ubyte * 16)()
    cuda("cuMemcpyDtoH_v2", byref(back), address, c_size_t(16))
    found["read"] = list(back[:2])
    os.close(fd.value)
    cuda("cuMemUnmap", address, c_size_t(SIZE))
    cuda("cuMemAddressFree", address, c_size_t(SIZE))
    cuda("cuMemRelease", other)
    cuda("cuMemRelease", handle)
    return found


def dma_buf_of_vmm() -> dict[str, object]:
    """Of mapped memory that was asked for with RDMA."""
    handle, address, fd = c_uint64(), c_uint64(), c_int(-1)
    prop = Prop(PINNED, 0, location)
    prop.rdma = 1
    cuda("cuMemCreate", byref(handle), c_size_t(SIZE), byref(prop), c_uint64(0))
    cuda("cuMemAddressReserve", byref(address), c_size_t(SIZE), c_size_t(0), c_uint64(0), c_uint64(0))
    cuda("cuMemMap", address, c_size_t(SIZE), c_size_t(0), handle, c_uint64(0))
    access = Access(location, READ_WRITE)
    cuda("cuMemSetAccess", address, c_size_t(SIZE), byref(access), c_size_t(1))
    cuda("cuMemGetHandleForAddressRange", byref(fd), address, c_size_t(SIZE), DMA_BUF_FD, c_uint64(0))
    found = described(fd.value)
    os.close(fd.value)
    cuda("cuMemUnmap", address, c_size_t(SIZE))
    cuda("cuMemAddressFree", address, c_size_t(SIZE))
    cuda("cuMemRelease", handle)
    return found


def fabric() -> str:
    handle, exported = created(FABRIC), (c_ubyte * 64)()
    cuda("cuMemExportToShareableHandle", byref(exported), handle, FABRIC, c_uint64(0))
    cuda("cuMemRelease", handle)
    return bytes(exported[:8]).hex()


def multicast_granularity() -> int:
    size, prop = c_size_t(), Multicast(1, SIZE, POSIX_FD, 0)
    cuda("cuMulticastGetGranularity", byref(size), byref(prop), 0)
    return size.value


def multicast() -> str:
    least = report.facts["multicast_granularity"]
    size = least if isinstance(least, int) else SIZE
    handle, prop = c_uint64(), Multicast(1, size, POSIX_FD, 0)
    cuda("cuMulticastCreate", byref(handle), byref(prop))
    try:
        cuda("cuMulticastAddDevice", handle, 0)
        memory = created(POSIX_FD, size)
        cuda("cuMulticastBindMem", handle, c_size_t(0), memory, c_size_t(0), c_size_t(size), c_uint64(0))
        cuda("cuMulticastUnbind", handle, 0, c_size_t(0), c_size_t(size))
        cuda("cuMemRelease", memory)
    finally:
        cuda.code("cuMemRelease", handle)
    return "made, bound and undone"


started = report.check("start", start)
if not isinstance(started, Cuda):
    report.finish()
cuda = started
report.facts["start"] = True
buffer = c_uint64()
report.check("attributes", attributes)
if report.check("alloc", plain) is not None:
    report.facts["alloc"] = hex(buffer.value)
    report.check("dma_buf", lambda: dma_buf(0), needed=False)
    report.check("dma_buf_pcie", lambda: dma_buf(MAPPING_PCIE), needed=False)
    report.check("sync_memops", sync_memops)
    report.check("ipc_handle", ipc_handle)
report.check("granularity", granularity)
report.check("posix_fd", posix_fd)
report.check("dma_buf_of_vmm", dma_buf_of_vmm, needed=False)
report.check("fabric", fabric, needed=False)
report.check("multicast_granularity", multicast_granularity, needed=False)
report.check("multicast", multicast, needed=False)
if buffer.value:
    report.check("free", lambda: cuda("cuMemFree_v2", buffer))
report.finish()

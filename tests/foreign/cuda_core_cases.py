"""cuda.core and cuda.bindings, as they come from PyPI, in a container with a card. Prints one JSON document.

What they make of the driver's interface: device, pools, virtual addresses, libraries. Kernels are launched,
and compute nothing; NVIDIA's run-time library and compilers are not asked.
"""

import ctypes
import json
import os
import time
from functools import partial
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ObjectCode,
    checkpoint,
    launch,
    system,
)
from cuda.core._utils.cuda_utils import CUDAError

MIB = 1 << 20
UNKNOWN = (driver.CUresult.CUDA_ERROR_INVALID_VALUE, None)
PTX = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry mgpu_spin(.param .u64 ns) { ret; }
"""


def check(answer: tuple[Any, ...]) -> Any:
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def pattern(size: int) -> Any:
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


def bytes_at(address: int, size: int) -> Any:
    back = np.zeros(size, dtype=np.uint8)
    check(driver.cuMemcpyDtoH(back, address, size))
    return back


def device(card: Device) -> Any:
    """Every attribute that the bindings know has an answer."""
    refused = [
        attribute.name
        for attribute in driver.CUdevice_attribute
        if driver.cuDeviceGetAttribute(attribute, 0)[0] != driver.CUresult.CUDA_SUCCESS
    ]
    return {
        "name": card.name,
        "capability": list(card.compute_capability),
        "processors": card.properties.multiprocessor_count,
        "total_mib": check(driver.cuMemGetInfo())[1] // MIB,
        "refused": refused,
        "misnamed": [
            error.name
            for error in driver.CUresult
            if driver.cuGetErrorName(error)
            not in (UNKNOWN, (driver.CUresult.CUDA_SUCCESS, error.name.encode()))
        ],
    }


def tools(card: Device) -> Any:
    """The same card by NVML, through these bindings."""
    other = system.Device(index=0)
    return {
        "count": system.get_num_devices(),
        "name": other.name,
        "same": other.uuid.removeprefix("GPU-") == card.uuid.removeprefix("GPU-"),
        "total_mib": other.memory_info.total // MIB,
    }


def pools(card: Device) -> Any:
    """Copies in the order of a stream, from a pool that gives back what is free; out of memory, and on."""
    stream, data = card.create_stream(), pattern(3 * MIB)
    pool = DeviceMemoryResource(card, DeviceMemoryResourceOptions(max_size=0))
    pinned = LegacyPinnedMemoryResource()
    source, target = pinned.allocate(data.size), pinned.allocate(data.size)
    np.from_dlpack(source).view(np.uint8)[:] = data
    one, two = (pool.allocate(data.size, stream=stream) for _ in range(2))
    timing = EventOptions(timing_enabled=True)
    begin = stream.record(options=timing)
    source.copy_to(one, stream=stream)
    one.copy_to(two, stream=stream)
    two.copy_to(target, stream=stream)
    end = stream.record(options=timing)
    end.sync()
    used = pool.attributes.used_mem_current
    one.close(stream)
    two.close(stream)
    stream.sync()
    try:
        pool.allocate(check(driver.cuMemGetInfo())[0] + 1, stream=stream)
        refused = None
    except CUDAError as error:
        refused = str(error).split(":")[0]
    again = pool.allocate(data.size, stream=stream)
    return {
        "equal": bool((np.from_dlpack(target).view(np.uint8) == data).all()),
        "ms": end - begin,
        "used": used,
        "left": [pool.attributes.used_mem_current, pool.attributes.reserved_mem_current],
        "high": pool.attributes.used_mem_high,
        "refused": refused,
        "again": again.size,
        "peers": list(pool.peer_accessible_by),
    }


def thresholds(card: Device) -> Any:
    """What a pool may keep is there for the next of that size, and trimmed it is not."""
    stream = card.create_stream()
    pool = DeviceMemoryResource(card, DeviceMemoryResourceOptions(max_size=0))
    handle = driver.CUmemoryPool(int(pool.handle))
    release = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    check(driver.cuMemPoolSetAttribute(handle, release, driver.cuuint64_t(8 * MIB)))
    held = [pool.allocate(4 * MIB, stream=stream) for _ in range(3)]
    places = {int(buffer.handle) for buffer in held}
    for buffer in held:
        buffer.close(stream)
    stream.sync()
    kept = pool.attributes.reserved_mem_current
    again = pool.allocate(4 * MIB, stream=stream)
    used_again = int(again.handle) in places
    again.close(stream)
    stream.sync()
    check(driver.cuMemPoolTrimTo(handle, 0))
    return [kept // MIB, used_again, pool.attributes.reserved_mem_current]


def virtual_addresses(_: Device) -> Any:
    """Two objects one behind the other: one copy goes across; remapped elsewhere, they hold what they
    held."""
    before, size = check(driver.cuMemGetInfo())[0], 4 * MIB
    access, kind = driver.CUmemAccessDesc(), driver.CUmemAllocationProp()
    kind.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    kind.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.type = kind.location.type
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    handles = [check(driver.cuMemCreate(size, kind, 0)) for _ in range(2)]
    data, seen = pattern(2 * size), []
    for turn in range(2):
        at = int(check(driver.cuMemAddressReserve(2 * size, 0, 0, 0)))
        for index, handle in enumerate(handles):
            check(driver.cuMemMap(at + index * size, size, 0, handle, 0))
        seen.append(driver.cuMemcpyHtoD(at, data, 1)[0].name)
        check(driver.cuMemSetAccess(at, 2 * size, [access], 1))
        if turn == 0:
            check(driver.cuMemcpyHtoD(at, data, data.size))
        else:
            again = check(driver.cuMemRetainAllocationHandle(at))
            check(driver.cuMemRelease(again))
            for handle in handles:
                check(driver.cuMemRelease(handle))
        seen.append(bool((bytes_at(at, data.size) == data).all()))
        check(driver.cuMemUnmap(at, 2 * size))
        check(driver.cuMemAddressFree(at, 2 * size))
    return [*seen, before == check(driver.cuMemGetInfo())[0]]


def kernels(card: Device) -> Any:
    """A library's kernel takes the time that it is told, and its stream that long."""
    code = ObjectCode.from_ptx(PTX)
    kernel = code.get_kernel("mgpu_spin")
    stream = card.create_stream()
    timing = EventOptions(timing_enabled=True)
    begin = stream.record(options=timing)
    launch(stream, LaunchConfig(grid=2, block=64), kernel, np.uint64(5_000_000))
    end = stream.record(options=timing)
    stream.sync()
    occupancy = kernel.occupancy
    return {
        "ms": end - begin,
        "threads": kernel.attributes.max_threads_per_block,
        "blocks": occupancy.max_active_blocks_per_multiprocessor(1024, 0),
        "best": list(occupancy.max_potential_block_size(0, 0)),
    }


def boxes(_: Device) -> Any:
    """A part of a matrix, there and back with other pitches, and planes."""
    data = pattern(64 * 32 * 4).reshape(4, 32, 64)
    address = check(driver.cuMemAlloc(data.size))
    back = np.zeros((2, 8, 16), dtype=np.uint8)
    check(driver.cuMemcpyHtoD(address, data, data.size))
    box = driver.CUDA_MEMCPY3D()
    box.srcMemoryType, box.dstMemoryType = (
        driver.CUmemorytype.CU_MEMORYTYPE_DEVICE,
        driver.CUmemorytype.CU_MEMORYTYPE_HOST,
    )
    box.srcDevice, box.dstHost = address, back.ctypes.data
    box.srcXInBytes, box.srcY, box.srcZ, box.srcPitch, box.srcHeight = 8, 4, 1, 64, 32
    box.dstPitch, box.dstHeight = 16, 8
    box.WidthInBytes, box.Height, box.Depth = 16, 8, 2
    check(driver.cuMemcpy3D(box))
    equal = [bool((back == data[1:3, 4:12, 8:24]).all())]
    flat = driver.CUDA_MEMCPY2D()
    flat.srcMemoryType, flat.dstMemoryType = box.dstMemoryType, box.srcMemoryType
    flat.srcHost, flat.dstDevice = back.ctypes.data, address
    flat.srcPitch, flat.dstPitch, flat.dstXInBytes = 16, 64, 48
    flat.WidthInBytes, flat.Height = 16, 8
    check(driver.cuMemcpy2D(flat))
    check(driver.cuMemsetD2D16(address, 64, 0xABCD, 8, 32))
    now = bytes_at(address, 64 * 32).reshape(32, 64)
    equal.append(bool((now[:8, 48:] == back[0]).all()))
    equal.append(bool((now[:, :16].copy().view(np.uint16) == 0xABCD).all()))
    equal.append(bool((now[8:, 16:] == data[0, 8:, 16:]).all()))
    flat.WidthInBytes = 65
    equal.append(driver.cuMemcpy2D(flat)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE)
    check(driver.cuMemFree(address))
    return equal


def pointers(card: Device) -> Any:
    """What is known of an address: of the card's, of both, and of memory that is not CUDA's."""
    kinds = driver.CUpointer_attribute
    asked = [
        kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED,
        kinds.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ]
    card_memory = int(check(driver.cuMemAlloc(MIB)))
    managed = int(check(driver.cuMemAllocManaged(MIB, 1)))
    host = int(check(driver.cuMemHostAlloc(MIB, 0)))
    own = np.zeros(64, dtype=np.uint8)
    found = [
        [int(value) for value in check(driver.cuPointerGetAttributes(len(asked), asked, at))]
        for at in (card_memory + 5, managed, host, own.ctypes.data)
    ]
    unknown = driver.cuPointerGetAttribute(asked[0], own.ctypes.data)[0]
    check(driver.cuMemHostRegister(own.ctypes.data, own.nbytes, 0))
    locked = int(check(driver.cuPointerGetAttribute(asked[0], own.ctypes.data)))
    check(driver.cuMemHostUnregister(own.ctypes.data))
    check(driver.cuMemFree(card_memory))
    check(driver.cuMemFree(managed))
    check(driver.cuMemFreeHost(host))
    return {"found": found, "unknown": unknown.name, "registered": locked}


def host_functions(card: Device) -> Any:
    """They run in the order of their stream, which goes on when they have returned."""
    stream, seen = card.create_stream(), []
    address = check(driver.cuMemAlloc(4))
    host = check(driver.cuMemHostAlloc(4, 0))
    word = ctypes.c_uint.from_address(int(host))

    def look(_: int) -> None:
        time.sleep(0.02)
        seen.append(word.value)
        word.value = 3

    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look)
    cu_stream = driver.CUstream(int(stream.handle))
    check(driver.cuMemsetD32Async(address, 2, 1, cu_stream))
    check(driver.cuMemcpyDtoHAsync(host, address, 4, cu_stream))
    check(driver.cuLaunchHostFunc(cu_stream, ctypes.cast(called, ctypes.c_void_p).value, 0))
    check(driver.cuMemcpyHtoDAsync(address, host, 4, cu_stream))
    pending = driver.cuStreamQuery(cu_stream)[0].name
    check(driver.cuStreamSynchronize(cu_stream))
    return {"pending": pending, "seen": seen, "after": bytes_at(int(address), 4).view(np.uint32).tolist()}


def checkpoints(card: Device) -> Any:
    """A process that moves itself: its steps, what it may not do, and its bytes."""
    own, data = checkpoint.Process(os.getpid()), np.arange(MIB, dtype=np.uint8)
    address = check(driver.cuMemAlloc(data.nbytes))
    check(driver.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes))
    states, illegal = [own.state], driver.cuCheckpointProcessRestore(own.pid, None)[0].name
    for step in (
        partial(own.lock, timeout_ms=5000),
        own.checkpoint,
        partial(own.restore, {card.uuid: card.uuid}),
        own.unlock,
    ):
        step()
        states.append(own.state)
    return {
        "states": states,
        "illegal": illegal,
        "thread": os.path.isdir(f"/proc/self/task/{own.restore_thread_id}"),
        "same": bool((bytes_at(int(address), data.nbytes) == data).all()),
    }


def exported(_: Device) -> Any:
    """Memory that other processes may have is not moved, and stays where it is."""
    kind = driver.CUmemAllocationProp()
    kind.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    kind.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made = check(driver.cuMemCreate(2 * MIB, kind, 0))
    by_fd = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    os.close(check(driver.cuMemExportToShareableHandle(made, by_fd, 0)))
    check(driver.cuCheckpointProcessLock(os.getpid(), None))
    answer = driver.cuCheckpointProcessCheckpoint(os.getpid(), None)[0].name
    check(driver.cuCheckpointProcessUnlock(os.getpid(), None))
    check(driver.cuMemRelease(made))
    return answer


CASES = (
    device,
    tools,
    pools,
    thresholds,
    virtual_addresses,
    kernels,
    boxes,
    pointers,
    host_functions,
    checkpoints,
    exported,
)

if __name__ == "__main__":
    first = Device(0)
    first.set_current()
    print(json.dumps({case.__name__: case(first) for case in CASES}))

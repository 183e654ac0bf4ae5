"""The calls that the filter hands to the mediator, and those it refuses, as data.

Source of the numbers: native_sched/rm/interface.def, which the unit tests compare with this file. The NVIDIA driver
looks at the number (bits 0-7) and the size (bits 16-29) of an RM command and ignores the type and direction bits, so
those are what has to match; UVM commands are bare numbers that would collide with FIONBIO and friends under a mask.
"""

from __future__ import annotations

# Number and size bits of an RM command.
RM_MASK = 0x3FFF00FF

# (number, bytes of the outer struct): the driver takes these at exactly these sizes.
RM_PAIRS: tuple[tuple[int, int], ...] = (
    (0x27, 56),  # ALLOC_MEMORY
    (0x28, 20),  # ALLOC_OBJECT: an allocation without parameters, unused by CUDA and NVML
    (0x29, 16),  # FREE
    (0x2A, 32),  # CONTROL
    (0x2B, 32),  # ALLOC, NVOS21
    (0x2B, 48),  # ALLOC, NVOS64
    (0x34, 28),  # DUP_OBJECT
    (0x35, 24),  # SHARE
    (0x41, 56),  # IDLE_CHANNELS
    (0x4A, 184),  # VID_HEAP_CONTROL
    (0x4E, 56),  # MAP_MEMORY
    (0x4F, 32),  # UNMAP_MEMORY
    (0x57, 56),  # MAP_MEMORY_DMA before 580.65
    (0x57, 64),  # MAP_MEMORY_DMA
    (0x58, 40),  # UNMAP_MEMORY_DMA before 550.54
    (0x58, 48),  # UNMAP_MEMORY_DMA
    (200, 2304),  # CARD_INFO, as libcuda and NVML send it: 32 cards
    (201, 4),  # REGISTER_FD
    (206, 16),  # ALLOC_OS_EVENT
    (207, 16),  # FREE_OS_EVENT
    (210, 72),  # CHECK_VERSION_STR
    (212, 128),  # ATTACH_GPUS_TO_FD: 32 GPU ids
    (214, 8),  # SYS_PARAMS
    (217, 2600),  # EXPORT_TO_DMABUF_FD before 570.86
    (217, 2608),  # EXPORT_TO_DMABUF_FD
    (218, 8),  # WAIT_OPEN_COMPLETE
)

# (number, mask of the size, datum): arrays, which the driver takes at any length, so that matching only the length
# that libcuda sends would let a container list or attach cards that it was not granted.
# CARD_INFO divides the size by 72 without looking at the rest: any size from 64 up, by its highest bit (sizes below
# 72 hold no card). ATTACH_GPUS_TO_FD takes any number of 32-bit ids.
RM_ARRAYS: tuple[tuple[int, int, int], ...] = (
    *((200, 0x3FFF & ~((1 << bit) - 1), 1 << bit) for bit in range(6, 14)),
    (212, 0x3, 0),
)

# All 32 bits of the commands of /dev/nvidia-uvm.
UVM_COMMANDS: tuple[int, ...] = (
    0x30000001,  # INITIALIZE
    0x30000002,  # DEINITIALIZE
    25,  # REGISTER_GPU_VASPACE
    26,  # UNREGISTER_GPU_VASPACE
    27,  # REGISTER_CHANNEL
    28,  # UNREGISTER_CHANNEL
    33,  # MAP_EXTERNAL_ALLOCATION
    34,  # FREE
    37,  # REGISTER_GPU
    38,  # UNREGISTER_GPU
    39,  # PAGEABLE_MEM_ACCESS
    42,  # SET_PREFERRED_LOCATION
    51,  # MIGRATE
    53,  # MIGRATE_RANGE_GROUP
    66,  # UNMAP_EXTERNAL
    71,  # POPULATE_PAGEABLE
    73,  # CREATE_EXTERNAL_RANGE
    74,  # MAP_EXTERNAL_SPARSE
    75,  # MM_INITIALIZE
    78,  # ALLOC_DEVICE_P2P
    80,  # DISCARD
)

# RM commands that the filter refuses itself. IOCTL_XFER_CMD carries any other command at any size behind a pointer.
REFUSED: tuple[tuple[int, int], ...] = ((211, 16),)

# System calls that reach a device past ioctl() and mmap(): io_uring opens and passes files without a system call to
# filter; remap_file_pages() calls a file's mmap() on what mremap() has moved, at another address than it was asked for.
REFUSED_SYSCALLS: tuple[str, ...] = ("io_uring_setup", "remap_file_pages")

# EPERM, which runc and crun also give when a profile names no errnoRet.
REFUSED_ERRNO = 1


def _rm(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple((RM_MASK, size << 16 | number) for number, size in pairs)


# The same as cubes: (mask, datum) over the low 32 bits of the command; a command c is in a cube when c & mask == datum.
# Exact lengths that an array covers are left out, so that the cubes are disjoint.
NOTIFY_CUBES: tuple[tuple[int, int], ...] = (
    *_rm(tuple(pair for pair in RM_PAIRS if pair[0] not in (200, 212))),
    *((mask << 16 | 0xFF, datum << 16 | number) for number, mask, datum in RM_ARRAYS),
    *((0xFFFFFFFF, number) for number in UVM_COMMANDS),
)
REFUSED_CUBES: tuple[tuple[int, int], ...] = _rm(REFUSED)

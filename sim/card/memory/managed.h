/* Managed memory: what a process has mapped of its file of nvidia-uvm, at the address that is the offset
 * (uvm_mmap() of NVIDIA's open-gpu-kernel-modules). The file is a memfd as large as an address space, and
 * holds the bytes: so host and card see the same, and nothing ever moves. What is mapped only the process's
 * map says, so it is asked whenever the card comes there, and what was unmapped has ended. */
#ifndef MGPU_SIM_MANAGED_H
#define MGPU_SIM_MANAGED_H
#include "sysmem.h"

struct managed {
    int fd;       /* -1: none */
    int32_t tgid; /* who initialised the file */
};

/* The size of the file. */
#define MANAGED_FILE_BYTES (UINT64_C(1) << 47)

/* Of the page that the address is in, and of those behind it, `most` bytes at the most: *memory with a
 * reference. False: it is not managed, or the host has no room. */
bool managed_at(const struct managed *managed, uint64_t address, uint64_t most, struct sysmem **memory,
                uint64_t *offset, uint64_t *bytes);
/* Whether all of it is managed. */
bool managed_covers(const struct managed *managed, uint64_t base, uint64_t length);
#endif

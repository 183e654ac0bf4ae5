/* The block size in which the kernel hotplugs memory; NVIDIA's user space tells RM of it (SYS_PARAMS). */
#ifndef MGPU_MEMORY_BLOCK_H
#define MGPU_MEMORY_BLOCK_H
#include "scoped.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* 0: the kernel has none, or /sys is not there. */
static inline uint64_t memory_block_bytes(void)
{
    scoped_fd int fd = open("/sys/devices/system/memory/block_size_bytes", O_RDONLY | O_CLOEXEC);
    char text[32] = "";

    return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 ? strtoull(text, NULL, 16) : 0;
}
#endif

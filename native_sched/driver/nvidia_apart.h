/* Calls whose end the driver may use to close descriptors of the process that made them: by number alone, whoever that is. */
#ifndef MGPU_NVIDIA_APART_H
#define MGPU_NVIDIA_APART_H
#include "nvidia_host.h"

/* The ioctl on fd, made by a thread that has a table of descriptors of its own, with that thread's creator's rights. What it
 * closes there stays open here. */
int nvidia_ioctl_apart(const struct nvidia_host *host, int fd, uint32_t cmd, void *outer);
#endif

/* Calls whose end the driver may use to close descriptors of the process that made them: by number alone, whoever that is. */
#ifndef MGPU_NVIDIA_APART_H
#define MGPU_NVIDIA_APART_H
#include "nvidia_host.h"
#include <stdbool.h>

/* The ioctl on fd, made by a thread that has a table of descriptors of its own, with that thread's creator's rights. What it
 * closes there stays open here. */
int nvidia_ioctl_apart(const struct nvidia_host *host, int fd, uint32_t cmd, void *outer);

/* While true is held no such thread has a copy of our descriptors. False: one has. */
bool nvidia_apart_hold(void);
void nvidia_apart_release(void);
#endif

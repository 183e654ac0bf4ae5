/* Calls after which the driver may close descriptors by number alone, in whichever process it runs then. */
#ifndef MGPU_NVIDIA_UNSHARED_H
#define MGPU_NVIDIA_UNSHARED_H
#include "host.h"
#include <stdbool.h>

/* Makes the ioctl on fd in a thread with a file table of its own and its creator's rights, so that what it
 * closes there stays open here. */
int nvidia_unshared_ioctl(const struct nvidia_host *host, int fd, uint32_t cmd, void *outer);

/* True: until the release no such thread has a copy of our descriptors. False: one has. */
bool nvidia_unshared_hold(void);
void nvidia_unshared_release(void);
#endif

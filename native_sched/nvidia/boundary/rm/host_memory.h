/* What the node has of its own memory for a tenant's request by RM. */
#ifndef MGPU_HOST_MEMORY_H
#define MGPU_HOST_MEMORY_H
#include <stdbool.h>
#include <stdint.h>

/* Whether the node has less memory than that available. RM clears an array for the pages before it asks the
 * kernel for them, 2 GiB for a TiB, so a request that cannot be met holds a processor for half a minute and
 * has the kernel kill others for want of memory. */
bool host_memory_lacks(uint64_t bytes);
#endif

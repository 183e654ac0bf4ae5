/* What the driver takes of a card by itself for a channel group. No account has it, so it is measured: groups
 * are made, and free memory is compared. */
#ifndef MGPU_NVIDIA_CONTEXT_H
#define MGPU_NVIDIA_CONTEXT_H
#include "native_sched/nvidia/driver/driver.h"

/* copies: of a copy engine, else of the graphics engine. To be called while the card is unused, since other
 * allocations change the result. -EIO: the driver makes no group, or does not report free memory. */
int nvidia_context_bytes(struct driver *d, const struct rm_table *rm, uint32_t minor, bool copies,
                         uint64_t *out);
#endif

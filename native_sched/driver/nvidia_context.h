/* What the driver takes of a card by itself for a channel group: neither an object nor in any account, so that it is measured,
 * by making groups and looking at what is free. */
#ifndef MGPU_NVIDIA_CONTEXT_H
#define MGPU_NVIDIA_CONTEXT_H
#include "driver.h"

/* copies: of a copy engine, else of the graphics engine. Whoever else takes or gives memory of that card meanwhile changes what
 * is found: to be asked while nobody uses it. -EIO: the driver makes no group, or does not tell what is free. */
int nvidia_context_bytes(struct driver *d, const struct rm_table *rm, uint32_t minor, bool copies,
                         uint64_t *out);
#endif

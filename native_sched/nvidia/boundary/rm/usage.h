/* Which process of a tenant holds how much of which card, from the tenant's own objects. */
#ifndef MGPU_USAGE_H
#define MGPU_USAGE_H
#include "native_sched/nvidia/boundary/call/call.h"

enum { USAGE_MAX = 1024 };

struct process_use {
    struct process_id who;
    uint32_t card;
    uint64_t bytes;
};

/* One entry for each process and card on which it holds memory or a channel group, memory without a
 * name included; what is beyond `max` (at most USAGE_MAX) is left out. Returns their number. */
uint32_t usage_by_process(const struct tenant *t, struct process_use *out, uint32_t max);
#endif

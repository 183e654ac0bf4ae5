/* The numbers by which the hardware knows channels and groups. A runlist has a fixed count of them, which all
 * tenants of the card share. A tenant gets one more while it has fewer than are left, so a new tenant finds
 * as many as the largest has. The count is over all runlists of the card, which errs on the safe side. */
#ifndef MGPU_IDS_H
#define MGPU_IDS_H
#include "native_sched/core/engine_types.h"
#include <stdatomic.h>
#include <stdbool.h>

enum { RUNLIST_IDS = 2048 }; /* NV_CHRAM_CHANNEL__SIZE_1 of ga100/dev_runlist.h; 4096 for all before */

struct ids {
    atomic_uint groups[MGPU_CARDS_MAX], channels[MGPU_CARDS_MAX];
};

static inline bool ids_left(const atomic_uint *used, uint32_t own)
{
    return own + atomic_load(used) < RUNLIST_IDS;
}
#endif

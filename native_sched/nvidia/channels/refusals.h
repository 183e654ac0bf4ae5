/* What the driver refuses the scheduler on a card, which then does without it. The first refusal of each kind
 * is kept and reported to mgpud once. */
#ifndef MGPU_REFUSALS_H
#define MGPU_REFUSALS_H
#include "native_sched/core/engine_types.h"
#include <stdatomic.h>
#include <stdbool.h>

struct refusals {
    atomic_int first[MGPU_CARDS_MAX][MGPU_WITHOUT_KINDS]; /* as in mgpu_card_without() */
    atomic_bool asked[MGPU_CARDS_MAX];                    /* whether it disables channels */
    int events;                                           /* eventfd for mgpud */
};

/* error: the result of a call of group_control.h or of userd_map(). */
void refusals_note(struct refusals *r, uint32_t card, enum mgpu_without kind, int error);

/* It is not so after all, where that was the reason. */
void refusals_withdraw(struct refusals *r, uint32_t card, enum mgpu_without kind, int error);

static inline bool refusals_any(const struct refusals *r, uint32_t card, enum mgpu_without kind)
{
    return atomic_load_explicit(&r->first[card][kind], memory_order_relaxed);
}
#endif

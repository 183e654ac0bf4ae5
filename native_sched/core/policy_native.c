#include "policy.h"

/* native-burst-share: no quota, everyone with work shares equally (seed 003: best effort, 1/N each). */

static uint32_t weight(const struct entity *e)
{
    (void)e;
    return 100;
}

const struct sched_policy policy_native = {.name = "native-burst-share", .weight = weight};

const struct sched_policy *const sched_policies[SCHED_POLICIES] = {
    [SCHED_NATIVE] = &policy_native,
    [SCHED_FIXED] = &policy_fixed,
    [SCHED_GUARANTEED] = &policy_guaranteed,
};

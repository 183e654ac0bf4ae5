#include "policy.h"

/* native-burst-share: no quota, all with work share equally (seed 003: best effort, 1/N each). */

static uint32_t weight(const struct entity *e)
{
    (void)e;
    return 100;
}

const struct sched_policy policy_native = {.weight = weight};

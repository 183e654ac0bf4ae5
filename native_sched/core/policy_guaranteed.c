#include "policy.h"

/* guaranteed-burst-share: time goes by quota among those that have work, so each has at least its quota, and
 * what idles is shared in proportion and given back at once (seed 003: burst share). */

static uint32_t weight(const struct entity *e)
{
    return e->quota;
}

const struct sched_policy policy_guaranteed = {.has_quota = true, .weight = weight};

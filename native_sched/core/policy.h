/* How the time of one class is shared among its entities on a card (design §4; seed 003: best effort, fixed
 * share, burst share). One per card, for both classes, each for itself. */
#ifndef MGPU_POLICY_H
#define MGPU_POLICY_H
#include "sched_types.h"

struct sched_policy {
    bool has_quota; /* quotas mean something, so their sum must fit */

    /* Shares are in proportion to it: 1..100. */
    uint32_t (*weight)(const struct entity *e);

    /* The rest only where there is a budget, NULL otherwise. */
    void (*start)(const struct sched *s, struct entity *e, uint64_t now);
    void (*refill)(const struct sched *s, struct entity *e, uint64_t now);
    /* ns < 0 is given back. */
    void (*charge)(struct entity *e, int64_t ns);
    bool (*throttled)(const struct sched *s, const struct entity *e);
    /* When `throttled` changes if all stays as it is; UINT64_MAX: not. The budget is that of now. */
    uint64_t (*turns_at)(const struct sched *s, const struct entity *e, uint64_t now);
    /* Can it ever be throttled? */
    bool (*binds)(const struct entity *e);
};

#define POLICY(id, object, name) extern const struct sched_policy object;
#include "policies.def"
#undef POLICY
extern const struct sched_policy *const sched_policies[SCHED_POLICIES];

static inline void policy_start(const struct sched *s, struct entity *e, uint64_t now)
{
    if (e->policy->start)
        e->policy->start(s, e, now);
}

static inline void policy_refill(const struct sched *s, struct entity *e, uint64_t now)
{
    if (e->policy->refill)
        e->policy->refill(s, e, now);
}

static inline void policy_charge(struct entity *e, int64_t ns)
{
    if (e->policy->charge)
        e->policy->charge(e, ns);
}

static inline bool policy_throttled(const struct sched *s, const struct entity *e)
{
    return e->policy->throttled && e->policy->throttled(s, e);
}

static inline uint64_t policy_turns_at(const struct sched *s, const struct entity *e, uint64_t now)
{
    return e->policy->turns_at ? e->policy->turns_at(s, e, now) : UINT64_MAX;
}

static inline bool policy_binds(const struct entity *e)
{
    return e->policy->binds && e->policy->binds(e);
}
#endif

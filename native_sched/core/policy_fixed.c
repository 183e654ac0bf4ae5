#include "class.h"
#include "entity.h"
#include "policy.h"

/* fixed-share: at most the quota, even on an idle card (seed 003: "cannot exceed it, even if the GPU is
 * idle").
 *
 * A token bucket per entity. It fills at the quota's rate while the entity's class is open on its cards, and
 * is emptied by what the entity is charged. What a suspend came too late for is a debt that later time
 * repays, so the share is exact in the long run. In hundredths of a ns, where percent times ns is a whole
 * number. */

/* Of the period in percent: a bucket that has filled up raises the share of the 10 s after by less than half
 * a point, whatever the quota. */
enum { BURST_MAX_PERCENT = 45 };

static int64_t burst(const struct sched *s, const struct entity *e)
{
    uint32_t percent = e->quota < BURST_MAX_PERCENT ? e->quota : BURST_MAX_PERCENT;

    return (int64_t)(s->period_ns * percent);
}

/* Less is not worth a resume and a suspend. It is half a burst, so that an entity that waits for its turn
 * loses nothing. */
static int64_t worth_running(const struct sched *s, const struct entity *e)
{
    return burst(s, e) / 2;
}

static bool binds(const struct entity *e)
{
    return e->quota < 100;
}

static uint32_t weight(const struct entity *e)
{
    return e->quota;
}

static void start(const struct sched *s, struct entity *e, uint64_t now)
{
    e->budget = worth_running(s, e);
    e->refilled_at = now;
}

static void refill(const struct sched *s, struct entity *e, uint64_t now)
{
    uint64_t from = e->class->open_at(s, e);
    int64_t most = burst(s, e);

    if (from < e->refilled_at)
        from = e->refilled_at;
    if (now > from) {
        /* A longer time fills any bucket and repays any debt of a quota; it keeps the product small. */
        uint64_t ns = now - from < UINT64_MAX / 256 ? now - from : UINT64_MAX / 256;

        e->budget += (int64_t)(ns * e->quota);
    }
    if (e->budget > most)
        e->budget = most;
    if (now > e->refilled_at)
        e->refilled_at = now;
}

static void charge(struct entity *e, int64_t ns)
{
    e->budget -= ns * 100;
}

static bool throttled(const struct sched *s, const struct entity *e)
{
    if (!binds(e))
        return false;
    return entity_on(e) ? e->budget <= 0 : e->budget < worth_running(s, e);
}

static uint64_t divide_up(int64_t a, uint32_t b)
{
    return ((uint64_t)a + b - 1) / b;
}

static uint64_t turns_at(const struct sched *s, const struct entity *e, uint64_t now)
{
    int64_t missing = worth_running(s, e) - e->budget;
    uint64_t from;

    if (!binds(e))
        return UINT64_MAX;
    if (entity_on(e) && e->budget > 0)
        return e->charge.open ? now + divide_up(e->budget, 100 - e->quota) : UINT64_MAX;
    from = e->class->open_at(s, e);
    if (missing <= 0 || from == UINT64_MAX)
        return UINT64_MAX;
    return (from > now ? from : now) + divide_up(missing, e->quota);
}

const struct sched_policy policy_fixed = {
    .has_quota = true,
    .weight = weight,
    .start = start,
    .refill = refill,
    .charge = charge,
    .throttled = throttled,
    .turns_at = turns_at,
    .binds = binds,
};

#include "class.h"
#include "rq.h"

/* Offline runs where no online entity has work or has had some within the hold: seeds 000 and 002 (100 %
 * preemption, released after 100 ms), design §4. Nothing detects its work in time, so on a card with others
 * at most one is enabled, busy or not. */

static uint64_t open_at(const struct sched *s, const struct entity *e)
{
    uint64_t latest = 0;

    for_each_card(card, e->cards)
    {
        uint64_t at = rq_offline_at(s, &s->rq[card]);

        if (at > latest)
            latest = at;
    }
    return latest;
}

static enum sched_why closed_why(const struct sched *s, const struct entity *e)
{
    return open_at(s, e) == UINT64_MAX ? WHY_PREEMPTED : WHY_HOLD;
}

static uint64_t idle_until(const struct sched *s, const struct entity *e)
{
    bool contended = false;

    for_each_card(card, e->cards)
        contended |= s->rq[card].nr[SCHED_ONLINE] || s->rq[card].nr[SCHED_OFFLINE] > 1;
    if (!contended)
        return UINT64_MAX;
    return entity_on(e) ? e->idle_since + s->linger_ns : 0;
}

static bool occupies(const struct entity *e)
{
    (void)e;
    return true;
}

const struct sched_class class_offline = {
    .id = SCHED_OFFLINE,
    .name = "offline",
    .open_at = open_at,
    .closed_why = closed_why,
    .idle_until = idle_until,
    .occupies = occupies,
};

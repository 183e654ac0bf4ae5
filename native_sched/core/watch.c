/* Whether cards are polled, and what an entity's charges come to between two reports. */
#include "policy.h"
#include "rq.h"
#include "sched.h"

void sched_watched(struct sched *s, uint64_t now, uint32_t card, bool watched)
{
    if (card >= SCHED_CARDS)
        return;
    s->rq[card].unwatched = !watched;
    for (enum sched_class_id class_id = 0; class_id < SCHED_CLASSES; class_id++) {
        for_each_member(s, e, card, class_id)
        {
            if (watched)
                entity_charge_open(s, e, now);
            else if (e->charge.open)
                entity_charge_close(e, now);
        }
    }
    if (now > s->now)
        s->now = now;
}

uint64_t sched_run_ns(const struct sched *s, uint64_t id, uint64_t now)
{
    const struct entity *e = entity_find(s, id);

    if (!e)
        return 0;
    return e->run_ns + (e->charge.open && now > e->charge.to ? now - e->charge.to : 0);
}

uint32_t sched_most_percent(const struct sched *s, uint64_t id)
{
    const struct entity *e = entity_find(s, id);

    return e && policy_binds(e) ? e->quota : 100;
}

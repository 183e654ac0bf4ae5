#include "class.h"
#include "policy.h"
#include "rq.h"
#include "sched.h"
#include <errno.h>

/* What the loop reports: work, and the outcome of orders. */

enum { RETRY_FIRST_NS = 250000, RETRY_DOUBLINGS = 8 };

static void pause_after(struct backoff *b, uint64_t now)
{
    b->retry_at = now + ((uint64_t)RETRY_FIRST_NS << b->failures);
    if (b->failures < RETRY_DOUBLINGS)
        b->failures++;
}

static void heard(struct sched *s, const struct entity *e, uint64_t now)
{
    if (now > s->now)
        s->now = now;
    s->dirty |= e->cards;
}

static int find(struct sched *s, uint64_t id, uint32_t card, struct entity **e)
{
    *e = entity_find(s, id);
    if (!*e)
        return -ENOENT;
    return card < SCHED_CARDS && ((*e)->cards >> card & 1) ? 0 : -EINVAL;
}

int sched_work_seen(struct sched *s, uint64_t now, uint64_t id, uint32_t card, uint64_t since)
{
    struct entity *e;
    int error = find(s, id, card, &e);

    if (error || (e->busy >> card & 1))
        return error;
    if (!e->busy)
        e->waking = true;
    e->busy |= 1u << card;
    if (online_work(e))
        rq_online_begins(s, card, now);
    entity_charge_open(s, e, since < now ? since : now);
    heard(s, e, now);
    return 0;
}

int sched_work_done(struct sched *s, uint64_t now, uint64_t id, uint32_t card, uint64_t since)
{
    struct entity *e;
    uint32_t counted;
    int error = find(s, id, card, &e);

    if (error || !(e->busy >> card & 1))
        return error;
    if (since > now)
        since = now;
    counted = online_work(e);
    e->busy &= ~(1u << card);
    /* The end of a gang's work on one card may be reported after a later end on another card. */
    if (since > e->idle_since)
        e->idle_since = since;
    if (!e->busy) {
        entity_charge_close(e, e->idle_since);
        e->slice_end = 0;
        e->waking = false;
    }
    if (counted)
        rq_online_ends(s, card, now, since);
    heard(s, e, now);
    return 0;
}

int sched_applied(struct sched *s, uint64_t at, uint64_t id, bool running)
{
    struct entity *e = entity_find(s, id);

    if (!e)
        return -ENOENT;
    if (running) {
        e->known = KNOWN_RUNNING;
        if (e->order == ORDER_RUN) {
            e->order = ORDER_NONE;
            if (e->slice_end)
                e->slice_end = at + s->slice_ns[e->class->id];
        }
        e->resume = e->suspend = (struct backoff){0};
        entity_charge_open(s, e, at);
    } else {
        entity_charge_close(e, at);
        e->known = KNOWN_SUSPENDED;
        e->suspended_at = at;
        e->slice_end = 0;
        if (e->order == ORDER_SUSPEND)
            e->order = ORDER_NONE;
        e->suspend = (struct backoff){0};
    }
    heard(s, e, at);
    return 0;
}

int sched_failed(struct sched *s, uint64_t at, uint64_t id, bool running)
{
    struct entity *e = entity_find(s, id);

    if (!e)
        return -ENOENT;
    if (running && e->order != ORDER_SUSPEND) {
        entity_charge_cancel(e);
        e->order = ORDER_NONE;
        e->known = KNOWN_NOTHING;
        e->slice_end = 0;
        pause_after(&e->resume, at);
    } else if (!running && e->order == ORDER_SUSPEND) {
        e->order = ORDER_NONE;
        pause_after(&e->suspend, at);
    }
    heard(s, e, at);
    return 0;
}

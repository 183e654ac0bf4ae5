#include "entity.h"
#include "class.h"
#include "policy.h"
#include <stddef.h>

static uint16_t *bucket_of(struct sched *s, uint64_t id)
{
    return &s->bucket[id * 0x9e3779b97f4a7c15u >> 54];
}
_Static_assert(SCHED_BUCKETS == 1 << (64 - 54), "bucket_of takes the hash's upper bits");

void entity_table_init(struct sched *s)
{
    for (uint16_t i = SCHED_ENTITIES; i; i--) {
        s->entity[i].hash_next = s->free;
        s->free = i;
    }
}

uint16_t entity_slot(const struct sched *s, const struct entity *e)
{
    return (uint16_t)(e - s->entity);
}

struct entity *entity_find(const struct sched *cs, uint64_t id)
{
    struct sched *s = (struct sched *)cs;

    for (uint16_t i = *bucket_of(s, id); i; i = s->entity[i].hash_next)
        if (s->entity[i].id == id)
            return &s->entity[i];
    return NULL;
}

struct entity *entity_new(struct sched *s, uint64_t id)
{
    uint16_t i = s->free, *head = bucket_of(s, id);

    if (!i)
        return NULL;
    s->free = s->entity[i].hash_next;
    s->entity[i] = (struct entity){.id = id, .hash_next = *head};
    *head = i;
    return &s->entity[i];
}

void entity_free(struct sched *s, struct entity *e)
{
    uint16_t i = entity_slot(s, e), *at = bucket_of(s, e->id);

    while (*at != i)
        at = &s->entity[*at].hash_next;
    *at = e->hash_next;
    *e = (struct entity){.hash_next = s->free};
    s->free = i;
}

static void charge_to(struct entity *e, uint64_t t)
{
    struct charge *c = &e->charge;
    int64_t delta;

    if (!c->open)
        return;
    if (t < c->from)
        t = c->from;
    delta = (int64_t)(t - c->to);
    c->to = t;
    e->run_ns += (uint64_t)delta;
    e->vruntime = c->vruntime + (t - c->from) * 100 / e->policy->weight(e);
    policy_charge(e, delta);
}

void entity_update(struct sched *s, struct entity *e, uint64_t now)
{
    if (e->charge.open && now > e->charge.to)
        charge_to(e, now);
    policy_refill(s, e, now);
}

static void charge_from(const struct sched *s, struct entity *e, uint64_t at)
{
    /* A bucket is full at most once: what flowed in before must not pay for more than it can hold. */
    policy_refill(s, e, at);
    if (at < e->enabled_at)
        at = e->enabled_at;
    if (at < e->charge.to)
        at = e->charge.to;
    e->charge = (struct charge){
        .open = true,
        .least = e->enabled_at > e->charge.to ? e->enabled_at : e->charge.to,
        .from = at,
        .to = at,
        .vruntime = e->vruntime,
    };
}

/* The beginning of a gang's work on one card may be reported after a later beginning on another card. */
static void charge_earlier(struct entity *e, uint64_t at)
{
    struct charge *c = &e->charge;
    uint64_t delta;

    if (at < c->least)
        at = c->least;
    if (at >= c->from)
        return;
    delta = c->from - at;
    c->from = at;
    e->run_ns += delta;
    e->vruntime += delta * 100 / e->policy->weight(e);
    policy_charge(e, (int64_t)delta);
}

void entity_charge_open(struct sched *s, struct entity *e, uint64_t at)
{
    charge_earlier(e, at);
    if (e->charge.open || !e->busy || s->rq[first_card(e->busy)].unwatched)
        return;
    /* A suspend under way in an unknown state: it may have overtaken a resume. */
    if (e->known == KNOWN_RUNNING || e->order == ORDER_RUN ||
        (e->known == KNOWN_NOTHING && e->order == ORDER_SUSPEND)) {
        charge_from(s, e, at);
    } else if (e->known == KNOWN_SUSPENDED && at < e->suspended_at) {
        /* Seen too late: it ran until it was suspended as idle. */
        charge_from(s, e, at);
        entity_charge_close(e, e->suspended_at);
    }
}

void entity_charge_close(struct entity *e, uint64_t at)
{
    charge_to(e, at);
    e->charge.open = false;
}

void entity_charge_cancel(struct entity *e)
{
    entity_charge_close(e, e->charge.from);
}

#include "rq.h"
#include "class.h"

void rq_init(struct sched *s)
{
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        s->rq[card] = (struct rq){.domain = 1u << card, .wake_at = UINT64_MAX};
}

static uint16_t *link_of(struct sched *s, uint32_t card, const struct entity *e)
{
    uint16_t *at = &s->rq[card].members[e->class->id];

    while (*at && s->entity[*at].id < e->id)
        at = &s->entity[*at].next[card];
    return at;
}

void rq_link(struct sched *s, struct entity *e)
{
    for_each_card(card, e->cards)
    {
        uint16_t *at = link_of(s, card, e);

        e->next[card] = *at;
        *at = entity_slot(s, e);
        s->rq[card].nr[e->class->id]++;
    }
}

void rq_unlink(struct sched *s, struct entity *e)
{
    for_each_card(card, e->cards)
    {
        *link_of(s, card, e) = e->next[card];
        s->rq[card].nr[e->class->id]--;
    }
}

uint32_t rq_domains(const struct sched *s, uint32_t cards)
{
    uint32_t all = 0;

    for_each_card(card, cards) all |= s->rq[card].domain;
    return all;
}

static void couple(struct sched *s, uint32_t cards)
{
    uint32_t domain = rq_domains(s, cards);

    for_each_card(card, domain) s->rq[card].domain = domain;
}

void rq_couple(struct sched *s, uint32_t cards)
{
    for_each_card(card, cards)
    {
        s->rq[card].domain = 1u << card;
        s->rq[card].wake_at = UINT64_MAX;
    }
    for (enum sched_class_id class_id = 0; class_id < SCHED_CLASSES; class_id++)
        for_each_in_domain(s, e, cards, class_id) couple(s, e->cards);
    s->dirty |= cards;
}

uint32_t rq_quota_sum(const struct sched *cs, uint32_t card, enum sched_class_id class_id,
                      const struct entity *except)
{
    struct sched *s = (struct sched *)cs;
    uint32_t sum = 0;

    for_each_member(s, e, card, class_id) sum += e == except ? 0 : e->quota;
    return sum;
}

uint64_t rq_offline_at(const struct sched *s, const struct rq *rq)
{
    if (rq->online_busy)
        return UINT64_MAX;
    return rq->online_ended ? rq->online_end + s->hold_ns : 0;
}

void rq_update_offline(struct sched *s, uint32_t card, uint64_t now)
{
    for_each_member(s, e, card, SCHED_OFFLINE) entity_update(s, e, now);
}

void rq_online_begins(struct sched *s, uint32_t card, uint64_t now)
{
    if (!s->rq[card].online_busy)
        rq_update_offline(s, card, now);
    s->rq[card].online_busy++;
}

void rq_online_ends(struct sched *s, uint32_t card, uint64_t now, uint64_t since)
{
    struct rq *rq = &s->rq[card];

    if (rq->online_busy == 1)
        rq_update_offline(s, card, now);
    rq->online_busy--;
    if (!rq->online_ended || since > rq->online_end)
        rq->online_end = since;
    rq->online_ended = true;
}

/* One card's run queues, and the domains of cards that gangs couple: a decision concerns one domain. */
#ifndef MGPU_RQ_H
#define MGPU_RQ_H
#include "entity.h"

void rq_init(struct sched *s);

/* On all of the entity's cards; the domains are those before the change until rq_couple. */
void rq_link(struct sched *s, struct entity *e);
void rq_unlink(struct sched *s, struct entity *e);

/* All cards of the domains that these cards belong to. */
uint32_t rq_domains(const struct sched *s, uint32_t cards);
/* Finds the domains among these cards anew; they must be whole domains. */
void rq_couple(struct sched *s, uint32_t cards);

/* The sum of the class's quotas on the card without `except`. */
uint32_t rq_quota_sum(const struct sched *s, uint32_t card, enum sched_class_id class_id,
                      const struct entity *except);

/* When offline may run on the card; UINT64_MAX: online has work there. */
uint64_t rq_offline_at(const struct sched *s, const struct rq *rq);

/* An online entity's work on the card begins or ends. */
void rq_online_begins(struct sched *s, uint32_t card, uint64_t now);
void rq_online_ends(struct sched *s, uint32_t card, uint64_t now, uint64_t since);
/* Budgets of offline entities on the card, up to now: before what they are refilled by changes. */
void rq_update_offline(struct sched *s, uint32_t card, uint64_t now);

static inline struct entity *rq_first(struct sched *s, uint32_t card, enum sched_class_id class_id)
{
    return &s->entity[s->rq[card].members[class_id]];
}

static inline struct entity *rq_next(struct sched *s, const struct entity *e, uint32_t card)
{
    return &s->entity[e->next[card]];
}

/* By rising id, so that the order of arrival changes nothing. */
#define for_each_member(s, e, card, class_id) \
    for (struct entity *e = rq_first(s, card, class_id); e != (s)->entity; e = rq_next(s, e, card))

/* Every entity of the class in a domain, gangs at their first card. */
#define for_each_in_domain(s, e, domain, class_id) \
    for_each_card(card_of_##e, domain)             \
        for_each_member(s, e, card_of_##e, class_id) if (first_card(e->cards) == card_of_##e)
#endif

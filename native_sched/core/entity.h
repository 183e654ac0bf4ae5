/* One container as the scheduler sees it: whether it runs, and what it has been charged. */
#ifndef MGPU_ENTITY_H
#define MGPU_ENTITY_H
#include "sched_types.h"

/* Virtual times wrap: only differences mean anything. */
static inline bool vruntime_before(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) < 0;
}

/* Enabled by the last order, or else as the loop reported. */
static inline bool entity_on(const struct entity *e)
{
    return e->order == ORDER_RUN || (e->order == ORDER_NONE && e->known == KNOWN_RUNNING);
}

/* May it be on its cards at this moment? */
static inline bool entity_may_run(const struct entity *e)
{
    return e->known != KNOWN_SUSPENDED || e->order == ORDER_RUN;
}

void entity_table_init(struct sched *s);
/* NULL: there is none. */
struct entity *entity_find(const struct sched *s, uint64_t id);
/* NULL: no room. The id must be new. */
struct entity *entity_new(struct sched *s, uint64_t id);
void entity_free(struct sched *s, struct entity *e);
uint16_t entity_slot(const struct sched *s, const struct entity *e);

/* Charges and refills up to now. */
void entity_update(struct sched *s, struct entity *e, uint64_t now);

/* A charge begins, if the entity has work and its cards and no charge is open. */
void entity_charge_open(struct sched *s, struct entity *e, uint64_t at);
/* It ends; what had been charged after `at` is given back. */
void entity_charge_close(struct entity *e, uint64_t at);
/* All of it is given back: the entity did not run after all. */
void entity_charge_cancel(struct entity *e);
#endif

/* The functions of engine.h that concern scheduling. */
#define _GNU_SOURCE
#include "engine.h"
#include "engine_private.h"
#include "native_sched/loop/entities.h"
#include "native_sched/nvidia/driver/chips.h"
#include <errno.h>
#include <stdio.h>

int mgpu_sched_configure(struct mgpu_engine *e, const struct mgpu_sched_config *config)
{
    if (!config->poll_fast_ns || !config->poll_slow_ns)
        return -EINVAL;
    loop_configure(&e->loop, config);
    return 0;
}

int mgpu_card_policy(struct mgpu_engine *e, uint32_t card, uint32_t policy)
{
    return mediator_card(&e->mediator, card) ? loop_card_policy(&e->loop, card, policy) : -ENOENT;
}

int mgpu_tenant_schedule(struct mgpu_engine *e, uint64_t id, uint32_t class, uint32_t quota_percent)
{
    struct sched_entity_config config = {.id = id, .quota_percent = quota_percent};
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);

    if (!t)
        return -ENOENT;
    if (e->loop.config.off)
        return groups_run(t->groups, true);
    if (class > MGPU_OFFLINE)
        return -EINVAL;
    config.class_id = class == MGPU_ONLINE ? SCHED_ONLINE : SCHED_OFFLINE;
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        config.cards |= t->granted[i] ? 1u << i : 0;
    return loop_schedule(&e->loop, &config, t->groups, t->utilization);
}

int mgpu_tenant_pause(struct mgpu_engine *e, uint64_t id, uint32_t paused)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);

    if (!t)
        return -ENOENT;
    return e->loop.config.off ? groups_pause(t->groups, paused) : loop_pause(&e->loop, id, paused);
}

int mgpu_tenant_sched(struct mgpu_engine *e, uint64_t id, struct mgpu_sched_state *out)
{
    return loop_state(&e->loop, id, out);
}

int mgpu_sched_events(struct mgpu_engine *e, uint64_t since, struct mgpu_sched_event *out, uint32_t max,
                      uint64_t *next, uint64_t *lost)
{
    return (int)events_read(&e->loop.events, since, out, max, next, lost);
}

int mgpu_card_without(struct mgpu_engine *e, uint32_t card, int32_t *out)
{
    const struct card *known = mediator_card(&e->mediator, card);

    if (!known)
        return -ENOENT;
    for (int i = 0; i < MGPU_WITHOUT_KINDS; i++)
        out[i] = atomic_load(&e->refusals.first[card][i]);
    return 0;
}

int mgpu_card_chip(struct mgpu_engine *e, uint32_t card, struct mgpu_chip *out)
{
    const struct mediator *m = &e->mediator;
    const struct card *known = mediator_card(m, card);
    const struct chip *chip;

    if (!known)
        return -ENOENT;
    chip = m->ops->chip(m->driver, known);
    *out = (struct mgpu_chip){.has_get = !chip || chip->has_get};
    if (chip) {
        snprintf(out->name, sizeof(out->name), "%s", chip->name);
        snprintf(out->header, sizeof(out->header), "%s", chip->header);
    }
    return 0;
}

int mgpu_sched_realtime(const struct mgpu_engine *e)
{
    return atomic_load(&e->loop.realtime);
}

/* Where work is seen. USERD is its owner's to write: hints, never facts. */
#include "groups.h"
#include "groups_private.h"
#include "native_sched/nvidia/rm/channel.h"

/* Where each runlist has channel RAM of its own, and so on every card with MIG, RM counts groups by runlist
 * (kchangrpInit() in kernel_channel_group.c, kfifoStateInitLocked() in kernel_fifo_init.c): another's on
 * another engine has the same number. */
static bool may_be_on(const struct group *group, const struct engine_status *engine)
{
    return !group->engine_type || engine->engines & engine_bit(group->engine_type);
}

/* What an engine that executes says of the tenant. */
static unsigned int executing(const struct groups *g, uint32_t card, const struct engine_status *engine)
{
    for (const struct group *group = g->group; group < g->group + g->groups; group++)
        if (group->live && group->card == card && group->tsg_id == engine->tsg_id && may_be_on(group, engine))
            return ACTIVITY_EXECUTING | (rm_is_video_engine(group->engine_type) ? ACTIVITY_VIDEO : 0);
    return ACTIVITY_OTHERS;
}

unsigned int groups_poll(struct groups *g, uint32_t card, const struct engine_status *engine, int engines)
{
    unsigned int seen = 0;

    if (pthread_mutex_trylock(&g->lock))
        return ACTIVITY_UNKNOWN;
    for (struct channel *c = g->channel; c < g->channel + g->channels; c++) {
        uint32_t put;

        if (c->live && c->card == card && c->blind)
            seen |= ACTIVITY_UNSEEN;
        if (!c->live || c->card != card || !c->userd.at)
            continue;
        put = userd_word(&c->userd, RM_USERD_GP_PUT);
        if (put != c->seen_put)
            seen |= ACTIVITY_NEW;
        if (!c->userd.has_get)
            seen |= ACTIVITY_BY_PUT;
        if (c->userd.has_get && put != userd_word(&c->userd, RM_USERD_GP_GET))
            seen |= ACTIVITY_PENDING;
        c->seen_put = put;
    }
    for (int i = 0; i < engines; i++)
        if (engine[i].busy)
            seen |= executing(g, card, &engine[i]);
    pthread_mutex_unlock(&g->lock);
    return seen;
}

uint32_t groups_differences(struct groups *g, uint32_t card, const struct engine_status *engine)
{
    uint32_t found = 0, above;

    /* The driver itself works on the others. */
    if (!(engine->engines & engine_bit(RM_ENGINE_GRAPHICS)))
        return 0;
    if (pthread_mutex_trylock(&g->lock))
        return UINT32_MAX;
    for (const struct group *group = g->group; group < g->group + g->groups; group++) {
        above = engine->tsg_id - group->tsg_id;
        if (group->live && group->card == card && group->tsg_id != NO_TSG && may_be_on(group, engine) &&
            above < 32)
            found |= 1u << above;
    }
    pthread_mutex_unlock(&g->lock);
    return found;
}

uint64_t groups_engines(const struct groups *g, uint32_t card)
{
    return ~RM_VIDEO_ENGINES | __atomic_load_n(&g->video[card], __ATOMIC_RELAXED);
}

bool groups_any_channel(struct groups *g, uint32_t card)
{
    return __atomic_load_n(&g->live_channels[card], __ATOMIC_RELAXED);
}

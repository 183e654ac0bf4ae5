/* Where work is looked for. USERD is its owner's to write: hints, never facts. */
#include "../boundary/rm_abi.h"
#include "groups_private.h"

static uint32_t word_at(const struct userd *u, uint32_t offset)
{
    return *(const volatile uint32_t *)(const volatile void *)(u->at + offset);
}

static bool ours(const struct groups *g, uint32_t card, uint32_t tsg_id)
{
    for (uint32_t i = 0; i < g->groups; i++)
        if (g->group[i].live && g->group[i].card == card && g->group[i].tsg_id == tsg_id)
            return true;
    return false;
}

unsigned int groups_look(struct groups *g, uint32_t card, const struct engine_status *engine, int engines)
{
    unsigned int seen = 0;

    if (pthread_mutex_trylock(&g->lock))
        return ACTIVITY_UNKNOWN;
    for (struct channel *c = g->channel; c < g->channel + g->channels; c++) {
        uint32_t put;

        if (!c->live || c->card != card || !c->userd.at)
            continue;
        put = word_at(&c->userd, RM_USERD_GP_PUT);
        if (put != c->seen_put)
            seen |= ACTIVITY_NEW;
        if (put != word_at(&c->userd, RM_USERD_GP_GET))
            seen |= ACTIVITY_PENDING;
        c->seen_put = put;
    }
    for (int i = 0; i < engines; i++)
        if (engine[i].busy)
            seen |= ours(g, card, engine[i].tsg_id) ? ACTIVITY_EXECUTING : ACTIVITY_OTHERS;
    pthread_mutex_unlock(&g->lock);
    return seen;
}

bool groups_any_channel(struct groups *g, uint32_t card)
{
    return __atomic_load_n(&g->live_channels[card], __ATOMIC_RELAXED);
}

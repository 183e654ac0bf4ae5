#include "look.h"
#include "entities.h"

/* Work has ended when that many looks in a row saw none of it, neither on an engine nor on its way. */
enum { IDLE_LOOKS = 3 };

static const struct card *card_of(const struct loop *l, uint32_t index)
{
    return mediator_card(l->m, index);
}

/* Busy is sticky: what was preempted or throttled in the middle of a kernel has nothing on its way and is on no engine.
 * So nothing is learnt of a tenant that does not run, nor while an engine executes somebody else's group. */
static bool tells_idle(const struct loop_entity *entity, unsigned int activity)
{
    return entity->running && !(activity & ACTIVITY_OTHERS);
}

/* Where nobody can see what engines execute, online that has had nothing to fetch for some time counts as idle: it is
 * never suspended for that, and a kernel that is still executed shares the card. Offline is, and would rest in the middle of it. */
static uint64_t quiet_ns(const struct loop *l, const struct loop_entity *entity, uint32_t card)
{
    if (!(l->blind_cards & 1u << card))
        return 0;
    return entity->online ? l->config.quiet_ns : UINT64_MAX;
}

static void look_at(struct loop *l, struct loop_entity *entity, uint32_t card, unsigned int activity,
                    uint64_t now)
{
    uint64_t quiet, since;

    if (activity & (ACTIVITY_NEW | ACTIVITY_PENDING | ACTIVITY_EXECUTING)) {
        entity->on[card].idle_looks = 0;
        if (entity->on[card].busy)
            return;
        entity->on[card].busy = true;
        sched_work_seen(&l->core, now, entity->id, card, now);
        loop_note(l, now, now, entity->id, MGPU_SCHED_WORK, card, MGPU_WHY_NONE);
        return;
    }
    if (!entity->on[card].busy)
        return;
    if (!tells_idle(entity, activity)) {
        entity->on[card].idle_looks = 0;
        return;
    }
    if (!entity->on[card].idle_looks++)
        entity->on[card].idle_since_ns = now;
    quiet = quiet_ns(l, entity, card);
    if (entity->on[card].idle_looks < IDLE_LOOKS || now - entity->on[card].idle_since_ns < quiet)
        return;
    since = entity->on[card].idle_since_ns + quiet;
    entity->on[card].busy = false;
    entity->on[card].idle_looks = 0;
    sched_work_done(&l->core, now, entity->id, card, since);
    loop_note(l, now, since, entity->id, MGPU_SCHED_IDLE, card, MGPU_WHY_NONE);
}

/* The core's account, by what the tenant was known to have work on: of several cards it is charged once. */
static void note_use(struct loop *l, struct loop_entity *entity, uint32_t card, bool was_busy, uint64_t now)
{
    uint64_t run_ns = sched_run_ns(&l->core, entity->id, now), before = entity->on[card].run_ns;

    entity->on[card].run_ns = run_ns;
    utilization_note(&entity->utilization->card[card], now, was_busy ? (int64_t)(run_ns - before) : 0,
                     sched_most_percent(&l->core, entity->id));
}

static void look_at_card(struct loop *l, uint32_t index, uint64_t now)
{
    struct engine_status engine[ENGINES_MAX];
    const struct card *card = card_of(l, index);
    int engines = card ? l->m->ops->engine_status(l->m->driver, card, engine) : 0;

    loop_stats_count(&l->stats.looks);
    l->blind_cards = engines ? l->blind_cards & ~(1u << index) : l->blind_cards | 1u << index;
    if (l->card[index].unwatched)
        sched_watched(&l->core, now, index, true);
    l->card[index].unwatched = false;
    for (uint32_t i = 0; i < l->card[index].tenants; i++) {
        struct loop_entity *entity = &l->entity[l->card[index].tenant[i]];
        unsigned int activity = groups_look(entity->groups, index, engine, engines);
        bool was_busy = entity->on[index].busy;

        /* At present an engine may execute anybody's work: then nobody is seen to be idle. */
        if (engines < 0)
            activity |= ACTIVITY_OTHERS;
        if (!(activity & ACTIVITY_UNKNOWN))
            look_at(l, entity, index, activity, now);
        note_use(l, entity, index, was_busy, now);
    }
}

void loop_look(struct loop *l)
{
    uint64_t now = loop_now_ns();

    pthread_mutex_lock(&l->lock);
    for_each_card(i, l->shared)
    {
        if (l->card[i].next_look_ns <= now)
            look_at_card(l, i, now);
    }
    l->looked_ns = now;
    pthread_mutex_unlock(&l->lock);
}

static bool any_channel(const struct loop *l, uint32_t card)
{
    for (uint32_t i = 0; i < l->card[card].tenants; i++)
        if (groups_any_channel(l->entity[l->card[card].tenant[i]].groups, card))
            return true;
    return false;
}

/* A program in a container that is not looked at otherwise wants to know what it uses. */
static bool wanted(const struct loop *l, uint32_t card, uint64_t now)
{
    for (uint32_t i = 0; i < l->card[card].tenants; i++)
        if (utilization_wanted(l->entity[l->card[card].tenant[i]].utilization, now))
            return true;
    return false;
}

static enum sched_watch_level level(const struct loop *l, uint32_t card, uint64_t now)
{
    enum sched_watch_level core = sched_watch(&l->core, card);

    return core == WATCH_NONE && wanted(l, card, now) ? WATCH_SLOW : core;
}

static void pause_accounts(struct loop *l, uint32_t card)
{
    for (uint32_t i = 0; i < l->card[card].tenants; i++)
        utilization_pause(&l->entity[l->card[card].tenant[i]].utilization->card[card]);
}

static uint64_t period_ns(struct loop *l, uint32_t card, uint64_t now)
{
    enum sched_watch_level watch = level(l, card, now);

    if (watch == WATCH_NONE && !l->card[card].unwatched) {
        sched_watched(&l->core, now, card, false);
        l->card[card].unwatched = true;
    }
    switch (any_channel(l, card) ? watch : WATCH_NONE) {
    case WATCH_FAST:
        return l->config.poll_fast_ns;
    case WATCH_SLOW:
        return l->config.poll_slow_ns;
    default:
        return 0;
    }
}

void loop_plan_looks(struct loop *l, uint64_t now)
{
    uint64_t earliest = UINT64_MAX, looked = l->looked_ns;

    for_each_card(i, l->shared)
    {
        struct loop_card *card = &l->card[i];
        uint64_t period = period_ns(l, i, now);

        if (!period && card->next_look_ns != UINT64_MAX)
            pause_accounts(l, i);
        if (!period)
            card->next_look_ns = UINT64_MAX;
        else if (card->next_look_ns <= looked || card->next_look_ns > looked + period)
            card->next_look_ns = looked + period;
        if (card->next_look_ns < earliest)
            earliest = card->next_look_ns;
    }
    l->next_look_ns = earliest;
}

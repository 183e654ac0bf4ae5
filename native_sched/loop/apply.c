#include "apply.h"
#include "base/mutex.h"
#include "entities.h"
#include "poll.h"
#include <errno.h>
#include <sys/eventfd.h>

enum { DECISIONS_AT_ONCE = 64 };
/* The longest time between two tries that counts as failing: twice the longest pause of the core. */
enum { TRIES_APART_NS = 128000000 };

static uint32_t why_of(const struct loop *l, uint64_t id)
{
    struct sched_state state;

    return sched_state(&l->core, id, &state) < 0 ? MGPU_WHY_NONE : loop_why(state.why);
}

/* A suspend may overtake the same entity's resume. */
static void order(struct loop *l, const struct sched_decision *d, uint64_t now)
{
    struct loop_entity *entity = loop_entity_of(l, d->id);

    assert_held(&l->lock);
    if (!entity)
        return;
    if (entity->order == LOOP_NOTHING)
        l->ordered[l->orders++] = (uint16_t)(entity - l->entity);
    entity->order = d->run ? LOOP_RESUME : LOOP_SUSPEND;
    entity->begun = false;
    entity->running = false;
    entity->why = why_of(l, d->id);
    entity->decided_ns = now;
    if (!d->run)
        loop_note(l, now, 0, d->id, MGPU_SCHED_SUSPEND, UINT32_MAX, entity->why);
}

static uint64_t decide(struct loop *l)
{
    struct sched_decision decision[DECISIONS_AT_ONCE];
    uint64_t now, wake_at;
    uint32_t n;
    bool more;

    do {
        pthread_mutex_lock(&l->lock);
        now = loop_now_ns();
        more = sched_decide(&l->core, now, decision, DECISIONS_AT_ONCE, &n, &wake_at);
        for (uint32_t i = 0; i < n; i++)
            order(l, &decision[i], now);
        loop_plan_polls(l, now);
        pthread_mutex_unlock(&l->lock);
    } while (more);
    return wake_at;
}

/* Suspends come first, in their order. NULL: there is no order. */
static struct loop_entity *next_in_turn(struct loop *l)
{
    uint32_t at = 0;
    uint16_t slot;

    assert_held(&l->active);
    if (!l->orders)
        return NULL;
    while (at < l->orders && l->entity[l->ordered[at]].order != LOOP_SUSPEND)
        at++;
    at = at < l->orders ? at : 0;
    slot = l->ordered[at];
    l->orders--;
    for (; at < l->orders; at++)
        l->ordered[at] = l->ordered[at + 1];
    return &l->entity[slot];
}

/* A tenant that cannot be suspended goes on working, so after some time mgpud is told and ends its container.
 * Only time in which it was to be suspended counts: between two tries no more than tries are apart. */
static void note_failing(struct loop *l, struct loop_entity *entity, int error, uint64_t at)
{
    uint64_t since = at - entity->failed_ns;

    if (error == 0) {
        entity->failing_ns = entity->failed_ns = 0;
        return;
    }
    if (entity->failed_ns)
        entity->failing_ns += since < TRIES_APART_NS ? since : TRIES_APART_NS;
    entity->failed_ns = at;
    if (entity->unsuspendable || entity->failing_ns < l->patience_ns)
        return;
    entity->unsuspendable = error == -EAGAIN ? MGPU_SUSPEND_HIDDEN : MGPU_SUSPEND_REFUSED;
    eventfd_write(l->m->events, 1);
}

static void report(struct loop *l, struct loop_entity *entity, int error)
{
    bool run = entity->order == LOOP_RESUME;
    uint64_t at = loop_now_ns();

    assert_held(&l->lock);
    if (!run)
        note_failing(l, entity, error, at);
    l->stats.decided_ns = entity->decided_ns;
    loop_stats_outcome(&l->stats, run, entity->why, error, at);
    entity->order = LOOP_NOTHING;
    if (error < 0) {
        sched_failed(&l->core, at, entity->id, run);
        return;
    }
    sched_applied(&l->core, at, entity->id, run);
    entity->running = run;
    loop_note(l, at, 0, entity->id, run ? MGPU_SCHED_RUNNING : MGPU_SCHED_SUSPENDED, UINT32_MAX, entity->why);
}

static void step(struct loop *l, struct loop_entity *entity)
{
    bool run = entity->order == LOOP_RESUME;
    int e;

    assert_held(&l->active); /* no entity is removed meanwhile */
    if (!entity->begun) {
        entity->begun = true;
        if (run)
            loop_note(l, loop_now_ns(), 0, entity->id, MGPU_SCHED_RESUME, UINT32_MAX, entity->why);
        groups_run_begin(entity->groups, run);
    }
    e = groups_run_step(entity->groups);
    LOCKED(&l->lock);
    if (e > 0)
        l->ordered[l->orders++] = (uint16_t)(entity - l->entity);
    else
        report(l, entity, e);
}

uint64_t loop_apply(struct loop *l)
{
    assert_held(&l->active);
    for (;;) {
        uint64_t wake_at = decide(l);
        struct loop_entity *entity = next_in_turn(l);

        if (!entity)
            return wake_at;
        step(l, entity);
        if (loop_now_ns() >= l->next_poll_ns)
            loop_poll(l);
    }
}

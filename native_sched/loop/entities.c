#include "entities.h"
#include "base/mutex.h"
#include "proof.h"
#include <errno.h>
#include <string.h>

struct loop_entity *loop_entity_of(struct loop *l, uint64_t id)
{
    assert_held(&l->lock);
    for (uint32_t i = 0; id && i < l->entities; i++)
        if (l->entity[i].id == id)
            return &l->entity[i];
    return NULL;
}

uint32_t loop_why(enum sched_why why)
{
    switch (why) {
    case WHY_PREEMPTED:
        return MGPU_WHY_PREEMPTED;
    case WHY_HOLD:
        return MGPU_WHY_HOLD;
    case WHY_QUOTA:
        return MGPU_WHY_QUOTA;
    case WHY_SLICE:
        return MGPU_WHY_SLICE;
    case WHY_IDLE:
        return MGPU_WHY_IDLE;
    case WHY_FAILED:
        return MGPU_WHY_FAILED;
    case WHY_PAUSED:
        return MGPU_WHY_PAUSED;
    case WHY_EVICTION:
        return MGPU_WHY_EVICTION;
    case WHY_NONE:
        break;
    }
    return MGPU_WHY_NONE;
}

static void leave(struct loop *l, const struct loop_entity *entity)
{
    uint16_t slot = (uint16_t)(entity - l->entity);

    assert_held(&l->lock);
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        for (uint32_t k = 0; k < l->card[i].tenants; k++)
            if (l->card[i].tenant[k] == slot)
                l->card[i].tenant[k--] = l->card[i].tenant[--l->card[i].tenants];
    for_each_card(i, l->shared)
    {
        if (!l->card[i].tenants)
            l->shared &= ~(1u << i);
    }
}

static int join(struct loop *l, struct loop_entity *entity, uint32_t cards)
{
    uint16_t slot = (uint16_t)(entity - l->entity);

    entity->cards = cards;
    for (uint32_t i = 0; i < MAX_CARDS; i++) {
        if (!(cards & 1u << i))
            continue;
        if (l->card[i].tenants == LOOP_CARD_TENANTS)
            return -ENOSPC;
        l->card[i].tenant[l->card[i].tenants++] = slot;
        l->shared |= 1u << i;
        /* A card of one tenant is not polled: what the tenant does has to be known before a decision. */
        l->card[i].next_poll_ns = 0;
    }
    return 0;
}

/* Moves the entity to other cards. It has nothing on those that it leaves. */
static int move(struct loop *l, struct loop_entity *entity, uint32_t cards)
{
    uint64_t run_ns = sched_run_ns(&l->core, entity->id, loop_now_ns());
    uint32_t before = entity->cards;
    int e;

    leave(l, entity);
    if ((e = join(l, entity, cards)) < 0) {
        leave(l, entity);
        join(l, entity, before);
        return e;
    }
    for_each_card(i, before ^ cards)
    {
        memset(&entity->on[i], 0, sizeof(entity->on[i]));
        entity->on[i].run_ns = run_ns;
    }
    return 0;
}

/* A tenant with channels from the start was the previous mgpud's. It may have been preempted inside a kernel,
 * which leaves no sign outside: it counts as busy until a poll has seen it run and idle. */
static void take_for_busy(struct loop *l, struct loop_entity *entity, uint32_t cards, uint64_t now)
{
    for (uint32_t i = 0; i < MAX_CARDS; i++) {
        if (!(cards & ~l->released_cards & 1u << i) || !groups_any_channel(entity->groups, i) ||
            entity->on[i].busy)
            continue;
        entity->on[i].busy = true;
        proof_end(l, i);
        sched_work_seen(&l->core, now, entity->id, i, now);
        loop_note(l, now, now, entity->id, MGPU_SCHED_WORK, i, MGPU_WHY_NONE);
    }
}

static int add(struct loop *l, const struct sched_entity_config *config, struct groups *groups,
               struct utilization *utilization)
{
    struct loop_entity *entity = l->entity;
    uint64_t now = loop_now_ns();
    int e;

    assert_held(&l->lock);
    while (entity < l->entity + l->entities && entity->id)
        entity++;
    if (entity == l->entity + MAX_TENANTS)
        return -ENOSPC;
    if ((e = sched_add(&l->core, now, config)) < 0)
        return e;
    *entity = (struct loop_entity){
        .id = config->id,
        .groups = groups,
        .utilization = utilization,
        .online = config->class_id == SCHED_ONLINE,
    };
    if (entity == l->entity + l->entities)
        l->entities++;
    if ((e = join(l, entity, config->cards)) < 0) {
        sched_remove(&l->core, now, config->id);
        leave(l, entity);
        entity->id = 0;
        return e;
    }
    atomic_store(&utilization->kept, true);
    loop_note(l, now, now, config->id, MGPU_SCHED_ADDED, UINT32_MAX, MGPU_WHY_NONE);
    take_for_busy(l, entity, config->cards, now);
    return 0;
}

/* A tenant that is idle by its fetches may be inside a kernel, and as offline would never be resumed. */
static int change(struct loop *l, struct loop_entity *entity, const struct sched_entity_config *config)
{
    bool online = config->class_id == SCHED_ONLINE;
    uint32_t before = entity->cards;
    int e = config->cards == before ? 0 : move(l, entity, config->cards);

    if (e == 0 && (e = sched_change(&l->core, loop_now_ns(), config)) < 0 && config->cards != before)
        move(l, entity, before);
    if (e < 0)
        return e;
    if (entity->online && !online)
        take_for_busy(l, entity, config->cards & l->blind_cards, loop_now_ns());
    entity->online = online;
    return 0;
}

int loop_schedule(struct loop *l, const struct sched_entity_config *config, struct groups *groups,
                  struct utilization *utilization)
{
    struct loop_entity *entity;
    int e;

    pthread_mutex_lock(&l->lock);
    e = (entity = loop_entity_of(l, config->id)) ? change(l, entity, config)
                                                 : add(l, config, groups, utilization);
    pthread_mutex_unlock(&l->lock);
    if (e == 0)
        e = groups_favour(groups, config->class_id == SCHED_ONLINE ? FAVOUR_FIRST : FAVOUR_LAST);
    loop_kick(l);
    /* A file without a holder blocks nothing: slices are applied with every run. */
    return e == -EAGAIN ? 0 : e;
}

enum mgpu_unsuspendable loop_unsuspendable(struct loop *l, uint64_t id)
{
    const struct loop_entity *entity;

    LOCKED(&l->lock);
    return (entity = loop_entity_of(l, id)) ? entity->unsuspendable : MGPU_SUSPENDABLE;
}

void loop_forget(struct loop *l, uint64_t id)
{
    struct loop_entity *entity;

    pthread_mutex_lock(&l->active);
    pthread_mutex_lock(&l->lock);
    if ((entity = loop_entity_of(l, id))) {
        sched_remove(&l->core, loop_now_ns(), id);
        leave(l, entity);
        entity->id = 0;
        loop_note(l, loop_now_ns(), 0, id, MGPU_SCHED_REMOVED, UINT32_MAX, MGPU_WHY_NONE);
    }
    pthread_mutex_unlock(&l->lock);
    pthread_mutex_unlock(&l->active);
    loop_kick(l);
}

void loop_configure(struct loop *l, const struct mgpu_sched_config *config)
{
    struct sched_config core = sched_default_config;

    core.hold_ns = config->hold_ns;
    pthread_mutex_lock(&l->lock);
    l->config = *config;
    sched_configure(&l->core, loop_now_ns(), &core);
    pthread_mutex_unlock(&l->lock);
    loop_kick(l);
}

int loop_card_policy(struct loop *l, uint32_t card, uint32_t policy)
{
    int e;

    if (policy >= SCHED_POLICIES)
        return -EINVAL;
    pthread_mutex_lock(&l->lock);
    e = sched_card_policy(&l->core, card, (enum sched_policy_id)policy);
    pthread_mutex_unlock(&l->lock);
    loop_kick(l);
    return e;
}

int loop_pause(struct loop *l, uint64_t id, bool paused)
{
    int e;

    pthread_mutex_lock(&l->lock);
    e = sched_pause(&l->core, loop_now_ns(), id, paused);
    pthread_mutex_unlock(&l->lock);
    loop_kick(l);
    return e;
}

static uint32_t cards_of(const struct loop *l, const struct loop_entity *entity)
{
    uint32_t cards = 0;

    assert_held(&l->lock);
    for_each_card(i, l->shared)
    {
        for (uint32_t k = 0; k < l->card[i].tenants; k++)
            if (l->card[i].tenant[k] == entity - l->entity)
                cards |= 1u << i;
    }
    return cards;
}

/* Online's slices are a second long: beside them, one that drains would hardly run. */
static void share_slices(struct loop *l, uint64_t id, bool drains)
{
    assert_held(&l->active);
    for (uint32_t i = 0; i < MAX_TENANTS; i++) {
        const struct loop_entity *entity = &l->entity[i], *one;
        enum favour usual = FAVOUR_NONE;

        pthread_mutex_lock(&l->lock);
        one = loop_entity_of(l, id);
        if (one && entity->id && cards_of(l, one) & cards_of(l, entity) && (entity->online || entity == one))
            usual = entity->online ? FAVOUR_FIRST : FAVOUR_LAST;
        pthread_mutex_unlock(&l->lock);
        if (usual)
            groups_favour(entity->groups, drains ? FAVOUR_EVEN : usual);
    }
}

int loop_drain(struct loop *l, uint64_t id, uint64_t until_ns)
{
    uint64_t now = loop_now_ns();
    int e;

    pthread_mutex_lock(&l->active);
    pthread_mutex_lock(&l->lock);
    if ((e = sched_drain(&l->core, now, id, until_ns)) == 0)
        loop_note(l, now, until_ns, id, until_ns ? MGPU_SCHED_DRAIN : MGPU_SCHED_DRAINED, UINT32_MAX,
                  MGPU_WHY_NONE);
    pthread_mutex_unlock(&l->lock);
    if (e == 0)
        share_slices(l, id, until_ns);
    pthread_mutex_unlock(&l->active);
    loop_kick(l);
    return e;
}

int loop_state(struct loop *l, uint64_t id, struct mgpu_sched_state *out)
{
    struct sched_state state;
    int e;

    LOCKED(&l->lock);
    e = sched_state(&l->core, id, &state);
    if (e < 0)
        return e;
    *out = (struct mgpu_sched_state){
        .enabled = state.enabled,
        .busy = state.busy,
        .throttled = state.throttled,
        .why = loop_why(state.why),
        .run_ns = state.run_ns,
        .suspended_ns = state.suspended_ns,
        .preemptions = state.preemptions,
        .video_ns = loop_entity_of(l, id)->video_ns,
    };
    return 0;
}

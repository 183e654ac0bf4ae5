#include "sched.h"
#include "class.h"
#include "policy.h"
#include "rq.h"
#include <errno.h>
#include <stddef.h>

enum { NSEC_PER_MSEC = 1000000 };

const struct sched_config sched_default_config = {
    .hold_ns = 100 * NSEC_PER_MSEC,
    .offline_slice_ns = 10 * NSEC_PER_MSEC,
    .online_slice_ns = 5 * NSEC_PER_MSEC,
    .period_ns = 100 * NSEC_PER_MSEC,
    .linger_ns = 50 * NSEC_PER_MSEC,
    .wakeup_granularity_ns = NSEC_PER_MSEC,
};

int sched_configure(struct sched *s, uint64_t now, const struct sched_config *config)
{
    if (!config->offline_slice_ns || !config->online_slice_ns || !config->period_ns)
        return -EINVAL;
    for (uint32_t card = 0; card < SCHED_CARDS; card++) {
        rq_update_offline(s, card, now);
        if (s->rq[card].nr[SCHED_ONLINE] || s->rq[card].nr[SCHED_OFFLINE])
            s->dirty |= 1u << card;
    }
    s->hold_ns = config->hold_ns;
    s->slice_ns[SCHED_ONLINE] = config->online_slice_ns;
    s->slice_ns[SCHED_OFFLINE] = config->offline_slice_ns;
    s->period_ns = config->period_ns;
    s->linger_ns = config->linger_ns;
    s->wakeup_granularity_ns = config->wakeup_granularity_ns;
    return 0;
}

int sched_init(struct sched *s, const struct sched_config *config, uint64_t now)
{
    *s = (struct sched){.now = now};
    rq_init(s);
    entity_table_init(s);
    return sched_configure(s, now, config);
}

/* The entity goes on under the policy that its cards now have. Those of a gang change one after the other; it
 * follows the last. */
static void follow_policy(struct sched *s, struct entity *e)
{
    enum sched_policy_id policy = s->rq[first_card(e->cards)].policy;

    for_each_card(card, e->cards)
    {
        if (s->rq[card].policy != policy)
            return;
    }
    entity_update(s, e, s->now);
    entity_charge_close(e, s->now);
    e->policy = sched_policies[policy];
    policy_start(s, e, s->now);
    e->waking = e->busy;
    e->slice_end = 0;
    entity_charge_open(s, e, s->now);
    s->dirty |= e->cards;
}

int sched_card_policy(struct sched *s, uint32_t card, enum sched_policy_id policy)
{
    struct rq *rq;

    if (card >= SCHED_CARDS || policy >= SCHED_POLICIES)
        return -EINVAL;
    rq = &s->rq[card];
    if (rq->policy == policy)
        return 0;
    for (int class = 0; class < SCHED_CLASSES && sched_policies[policy]->has_quota; class ++)
        if (rq_quota_sum(s, card, class, NULL) > 100)
            return -EDQUOT;
    rq->policy = policy;
    for (int class = 0; class < SCHED_CLASSES; class ++)
        for_each_member(s, e, card, class) follow_policy(s, e);
    return 0;
}

/* The policy of such an entity, `e` itself where it exists already. */
static int check(const struct sched *s, const struct sched_entity_config *c, const struct entity *e,
                 const struct sched_policy **policy)
{
    if (!c->cards || c->class_id >= SCHED_CLASSES)
        return -EINVAL;
    *policy = sched_policies[s->rq[first_card(c->cards)].policy];
    if ((*policy)->has_quota && (c->quota_percent < 1 || c->quota_percent > 100))
        return -EINVAL;
    for_each_card(card, c->cards)
    {
        if (sched_policies[s->rq[card].policy] != *policy)
            return -EINVAL;
        if ((*policy)->has_quota && rq_quota_sum(s, card, c->class_id, e) + c->quota_percent > 100)
            return -EDQUOT;
    }
    return 0;
}

/* Its cards, class and policy begin. */
static void enter(struct sched *s, struct entity *e, const struct sched_entity_config *c,
                  const struct sched_policy *policy, uint64_t now)
{
    uint32_t cards = rq_domains(s, c->cards | e->cards);

    e->cards = c->cards;
    e->class = sched_classes[c->class_id];
    if (c->class_id == SCHED_ONLINE)
        e->drain_until = 0;
    e->quota = c->quota_percent;
    if (e->policy != policy) {
        e->policy = policy;
        policy_start(s, e, now);
    }
    rq_link(s, e);
    rq_couple(s, cards);
}

int sched_add(struct sched *s, uint64_t now, const struct sched_entity_config *config)
{
    const struct sched_policy *policy;
    struct entity *e;
    int error = check(s, config, NULL, &policy);

    if (error)
        return error;
    if (entity_find(s, config->id))
        return -EEXIST;
    e = entity_new(s, config->id);
    if (!e)
        return -ENOSPC;
    e->idle_since = now;
    enter(s, e, config, policy, now);
    return 0;
}

int sched_change(struct sched *s, uint64_t now, const struct sched_entity_config *config)
{
    struct entity *e = entity_find(s, config->id);
    const struct sched_class *class;
    const struct sched_policy *policy;
    uint32_t cards, before, after;
    int error;

    if (!e)
        return -ENOENT;
    error = check(s, config, e, &policy);
    if (error)
        return error;
    class = e->class;
    cards = e->cards;
    entity_update(s, e, now);
    entity_charge_close(e, now);
    before = online_work(e);
    e->busy &= config->cards;
    rq_unlink(s, e);
    enter(s, e, config, policy, now);
    after = online_work(e);
    for_each_card(card, before & ~after) rq_online_ends(s, card, now, now);
    for_each_card(card, after & ~before) rq_online_begins(s, card, now);
    if (e->class != class || e->cards != cards)
        e->waking = e->busy;
    if (!e->busy)
        e->idle_since = now;
    e->slice_end = 0;
    entity_charge_open(s, e, now);
    return 0;
}

int sched_remove(struct sched *s, uint64_t now, uint64_t id)
{
    struct entity *e = entity_find(s, id);
    uint32_t cards;

    if (!e)
        return -ENOENT;
    cards = rq_domains(s, e->cards);
    for_each_card(card, online_work(e)) rq_online_ends(s, card, now, now);
    rq_unlink(s, e);
    entity_free(s, e);
    rq_couple(s, cards);
    return 0;
}

int sched_pause(struct sched *s, uint64_t now, uint64_t id, bool paused)
{
    struct entity *e = entity_find(s, id);

    if (!e)
        return -ENOENT;
    if (e->paused == paused)
        return 0;
    entity_update(s, e, now);
    if (paused)
        for_each_card(card, online_work(e)) rq_online_ends(s, card, now, now);
    e->paused = paused;
    for_each_card(card, online_work(e)) rq_online_begins(s, card, now);
    /* Its place in line is that of an entity without work in the meantime. */
    e->waking = e->busy;
    e->slice_end = 0;
    if (now > s->now)
        s->now = now;
    s->dirty |= e->cards;
    return 0;
}

int sched_drain(struct sched *s, uint64_t now, uint64_t id, uint64_t until)
{
    struct entity *e = entity_find(s, id);

    if (!e)
        return -ENOENT;
    if (until && e->class->id != SCHED_OFFLINE)
        return -EINVAL;
    e->drain_until = until;
    if (now > s->now)
        s->now = now;
    s->dirty |= e->cards;
    return 0;
}

int sched_state(const struct sched *s, uint64_t id, struct sched_state *out)
{
    const struct entity *e = entity_find(s, id);

    if (!e)
        return -ENOENT;
    *out = (struct sched_state){
        .enabled = entity_on(e),
        .confirmed = e->order == ORDER_NONE && e->known != KNOWN_NOTHING,
        .busy = e->busy && !s->rq[first_card(e->busy)].unwatched,
        .throttled = policy_throttled(s, e),
        .why = e->why,
        .run_ns = e->run_ns,
        .suspended_ns = e->suspended_ns,
        .preemptions = e->preemptions,
        .vruntime_ns = e->vruntime,
        .budget_ns = e->budget / 100,
    };
    if (e->charge.open && s->now > e->charge.to)
        out->run_ns += s->now - e->charge.to;
    if (e->known == KNOWN_SUSPENDED && e->order != ORDER_RUN && s->now > e->suspended_at)
        out->suspended_ns += s->now - e->suspended_at;
    return 0;
}

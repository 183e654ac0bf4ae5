#include "policy.h"
#include "rq.h"
#include "sched.h"
#include "select.h"

/* A decision takes the domains where something has happened or is due. It brings all charges there up to now,
 * plans which entities should be enabled, and orders what differs from the plan. */

struct orders {
    struct sched_decision *out; /* suspends grow from the front, resumes from the back */
    uint32_t max, suspends, resumes;
    bool full;
};

static void put(struct orders *o, const struct entity *e, bool run)
{
    uint32_t at = run ? o->max - ++o->resumes : o->suspends++;

    o->out[at] = (struct sched_decision){.id = e->id, .run = run};
}

static bool has_room(struct orders *o)
{
    if (o->suspends + o->resumes < o->max)
        return true;
    o->full = true;
    return false;
}

/* It is evicted: the one offline entity that runs whatever else holds. */
static bool drains(const struct entity *e, uint64_t now)
{
    return e->drain_until > now && !e->paused;
}

/* draining: the cards of entities of the class that drain. */
static enum sched_why blocked(const struct sched *s, const struct entity *e, uint32_t draining, uint64_t now)
{
    if (e->paused)
        return WHY_PAUSED;
    if (drains(e, now))
        return WHY_NONE;
    if (e->cards & draining)
        return WHY_EVICTION;
    if (e->class->open_at(s, e) > now)
        return e->class->closed_why(s, e);
    if (policy_throttled(s, e))
        return WHY_QUOTA;
    if (!entity_on(e) && now < e->resume.retry_at)
        return WHY_FAILED;
    return WHY_NONE;
}

/* Plans which entities of the class should be enabled. Returns the cards of those that wait for a turn. */
static uint32_t plan(struct sched *s, const struct sched_class *class, uint32_t domain, uint64_t now)
{
    uint32_t n = 0, taken, waiting = 0, draining = 0;

    for_each_in_domain(s, e, domain, class->id) draining |= drains(e, now) ? e->cards : 0;
    for_each_in_domain(s, e, domain, class->id)
    {
        entity_update(s, e, now);
        e->why = blocked(s, e, draining, now);
        e->chosen = false;
        if (e->busy && e->why == WHY_NONE)
            s->queue[n++] = e;
    }
    taken = select_run(s, class, n, now);
    for (uint32_t i = 0; i < n; i++)
        waiting |= s->queue[i]->chosen ? 0 : s->queue[i]->cards;
    for_each_in_domain(s, e, domain, class->id)
    {
        e->wanted = e->chosen;
        if (e->busy || e->why != WHY_NONE)
            continue;
        e->wanted = (drains(e, now) || now < class->idle_until(s, e)) &&
                    !(class->occupies(e) && (taken & e->cards));
        if (!e->wanted)
            e->why = WHY_IDLE;
        else if (class->occupies(e))
            taken |= e->cards;
    }
    return waiting;
}

/* Suspends every entity that should not run. Returns the cards on which one may still be running. */
static uint32_t order_suspends(struct sched *s, const struct sched_class *class, uint32_t domain,
                               uint64_t now, struct orders *o)
{
    uint32_t held = 0;

    for_each_in_domain(s, e, domain, class->id)
    {
        if (e->wanted || !entity_may_run(e))
            continue;
        if (class->occupies(e))
            held |= e->cards;
        if (e->order == ORDER_SUSPEND || now < e->suspend.retry_at || !has_room(o))
            continue;
        if (e->order == ORDER_RUN)
            e->known = KNOWN_NOTHING; /* the resume may still be applied */
        e->order = ORDER_SUSPEND;
        e->slice_end = 0;
        e->preemptions += e->why == WHY_PREEMPTED;
        put(o, e, false);
    }
    return held;
}

static void order_resumes(struct sched *s, const struct sched_class *class, uint32_t domain, uint64_t now,
                          uint32_t held, struct orders *o)
{
    for_each_in_domain(s, e, domain, class->id)
    {
        if (!e->wanted || entity_on(e) || e->order == ORDER_SUSPEND)
            continue;
        if ((class->occupies(e) && (held & e->cards)) || !has_room(o))
            continue;
        if (e->known == KNOWN_SUSPENDED)
            e->suspended_ns += now - e->suspended_at;
        e->order = ORDER_RUN;
        e->enabled_at = now;
        if (e->busy) {
            e->slice_end = UINT64_MAX;
            e->slice_vruntime = e->vruntime;
        }
        /* The switch-in is the tenant's own time (design §8), and so is what a slow driver needs for it. */
        entity_charge_open(s, e, now);
        put(o, e, true);
    }
}

/* When the plan for this entity changes if nothing happens. */
static uint64_t changes_at(const struct sched *s, const struct entity *e, uint64_t now, uint32_t waiting)
{
    uint64_t at = UINT64_MAX, t;
    bool runs_idle = !e->busy && e->class->idle_until(s, e) > now;

    if (entity_may_run(e) && !e->wanted && e->order != ORDER_SUSPEND)
        at = e->suspend.retry_at;
    if (drains(e, now) && e->drain_until < at)
        at = e->drain_until;
    if (!e->busy && !runs_idle)
        return at;
    switch ((enum sched_why)e->why) {
    case WHY_PREEMPTED:
    case WHY_HOLD:
        t = e->class->open_at(s, e);
        break;
    case WHY_FAILED:
        t = e->resume.retry_at;
        break;
    case WHY_PAUSED:
    case WHY_EVICTION: /* the other's end is a change of its own */
        return at;
    default:
        t = policy_turns_at(s, e, now);
    }
    if (t > now && t < at)
        at = t;
    if (runs_idle && e->wanted && e->class->idle_until(s, e) < at)
        at = e->class->idle_until(s, e);
    if (e->chosen && entity_on(e) && (waiting & e->cards) && e->slice_end < at)
        at = e->slice_end;
    return at;
}

static uint64_t wake_at(struct sched *s, const struct sched_class *class, uint32_t domain, uint64_t now,
                        uint32_t waiting)
{
    uint64_t at = UINT64_MAX;

    for_each_in_domain(s, e, domain, class->id)
    {
        uint64_t t = changes_at(s, e, now, waiting);

        if (t < at)
            at = t;
    }
    return at > now ? at : now + 1;
}

static bool alone(const struct sched *s, const struct entity *e)
{
    for_each_card(card, e->cards)
    {
        if (s->rq[card].nr[SCHED_ONLINE] + s->rq[card].nr[SCHED_OFFLINE] > 1)
            return false;
    }
    return true;
}

/* An online entity may submit work at any moment. */
static bool any_may_submit(struct sched *s, uint32_t card)
{
    for_each_member(s, e, card, SCHED_ONLINE) if (!e->paused) return true;
    return false;
}

static enum sched_watch_level watch(struct sched *s, uint32_t card)
{
    const struct rq *rq = &s->rq[card];

    if (rq->nr[SCHED_ONLINE] + rq->nr[SCHED_OFFLINE] == 0)
        return WATCH_NONE;
    if (rq->nr[SCHED_ONLINE] + rq->nr[SCHED_OFFLINE] == 1) {
        const struct entity *only = rq_first(s, card, rq->nr[SCHED_ONLINE] ? SCHED_ONLINE : SCHED_OFFLINE);

        if (alone(s, only))
            return policy_binds(only) ? WATCH_SLOW : WATCH_NONE;
    }
    if (!rq->online_busy && any_may_submit(s, card))
        for_each_member(s, e, card, SCHED_OFFLINE) if (entity_may_run(e)) return WATCH_FAST;
    return WATCH_SLOW;
}

static void decide_domain(struct sched *s, uint32_t domain, uint64_t now, struct orders *o)
{
    uint64_t at = UINT64_MAX;
    bool full = o->full;

    for (uint32_t i = 0; i < SCHED_CLASSES; i++) {
        uint32_t waiting = plan(s, sched_classes[i], domain, now);
        uint32_t held = order_suspends(s, sched_classes[i], domain, now, o);
        uint64_t t;

        order_resumes(s, sched_classes[i], domain, now, held, o);
        t = wake_at(s, sched_classes[i], domain, now, waiting);
        at = t < at ? t : at;
    }
    s->rq[first_card(domain)].wake_at = at;
    for_each_card(card, domain) s->rq[card].watch = (uint8_t)watch(s, card);
    if (o->full == full)
        s->dirty &= ~domain;
}

bool sched_decide(struct sched *s, uint64_t now, struct sched_decision *out, uint32_t max, uint32_t *n,
                  uint64_t *wake_at)
{
    struct orders o = {.out = out, .max = max};
    uint32_t due;

    if (now < s->now)
        now = s->now;
    s->now = now;
    *n = 0;
    *wake_at = s->wake_at;
    if (!s->dirty && now < s->wake_at)
        return false;
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        if (s->rq[card].wake_at <= now)
            s->dirty |= 1u << card;
    due = rq_domains(s, s->dirty);
    while (due && !o.full) {
        uint32_t domain = s->rq[first_card(due)].domain;

        decide_domain(s, domain, now, &o);
        due &= ~domain;
    }
    for (uint32_t i = 0; i < o.resumes / 2; i++) {
        struct sched_decision *a = &out[max - 1 - i], *b = &out[max - o.resumes + i], kept = *a;

        *a = *b;
        *b = kept;
    }
    for (uint32_t i = 0; i < o.resumes; i++)
        out[o.suspends + i] = out[max - o.resumes + i];
    *n = o.suspends + o.resumes;
    s->wake_at = UINT64_MAX;
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        if (s->rq[card].wake_at < s->wake_at)
            s->wake_at = s->rq[card].wake_at;
    *wake_at = s->wake_at;
    return o.full;
}

enum sched_watch_level sched_watch(const struct sched *s, uint32_t card)
{
    return card < SCHED_CARDS ? s->rq[card].watch : WATCH_NONE;
}

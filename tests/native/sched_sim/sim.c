#include "sim.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t within(struct tenant *t, struct span span)
{
    return span.min_ns +
           (span.max_ns > span.min_ns ? next_random(&t->rng) % (span.max_ns - span.min_ns + 1) : 0);
}

/* Around a mean: from half to one and a half of it. */
static uint64_t around(struct tenant *t, uint64_t mean_ns)
{
    return within(t, (struct span){mean_ns / 2, mean_ns + mean_ns / 2});
}

/* A total order, so that equal times never depend on who was pushed first. */
static bool earlier(const struct sim *m, const struct event *a, const struct event *b)
{
    if (a->at != b->at)
        return a->at < b->at;
    if (a->kind != b->kind)
        return a->kind < b->kind;
    if (a->tenant != b->tenant)
        return m->tenant[a->tenant].is.id < m->tenant[b->tenant].is.id;
    return a->sequence < b->sequence;
}

static void push(struct sim *m, struct event e)
{
    uint32_t i = m->heaped++;

    if (m->heaped == SIM_EVENTS) {
        sim_fail(m, "the simulator has no room for events");
        m->heaped--;
        return;
    }
    for (; i && earlier(m, &e, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = e;
}

static struct event pop(struct sim *m)
{
    struct event top = m->heap[0], last = m->heap[--m->heaped];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= m->heaped)
            break;
        if (child + 1 < m->heaped && earlier(m, &m->heap[child + 1], &m->heap[child]))
            child++;
        if (!earlier(m, &m->heap[child], &last))
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return top;
}

static struct event event_of(const struct sim *m, struct tenant *t, uint32_t card, enum event_kind kind,
                             uint64_t at)
{
    return (struct event){.at = at,
                          .kind = kind,
                          .tenant = (uint32_t)(t - m->tenant),
                          .card = card,
                          .sequence = t->sequence++,
                          .generation = kind == FINISH ? t->stream[card].generation : t->incarnation};
}

/* The loop sees the stream's state a little later, and never two states in the wrong order. */
static void changed(struct sim *m, struct tenant *t, uint32_t card, bool has_work)
{
    struct stream *st = &t->stream[card];
    uint64_t at = m->now + within(t, m->options.detect);
    struct event seen;

    st->has_work = has_work;
    if (at < st->tell_at)
        at = st->tell_at;
    st->tell_at = at;
    seen = event_of(m, t, card, DETECT, at);
    seen.run = has_work;
    seen.since = m->now;
    push(m, seen);
}

static void expect_finish(struct sim *m, struct tenant *t, uint32_t card)
{
    struct stream *st = &t->stream[card];

    st->generation++;
    if (t->running && st->has_work && st->remaining_ns != ENDLESS)
        push(m, event_of(m, t, card, FINISH, m->now + st->remaining_ns));
}

static void submit(struct sim *m, struct tenant *t, uint32_t card)
{
    struct stream *st = &t->stream[card];

    if (st->has_work || !st->work_ns)
        return;
    st->held_back = t->paused;
    if (t->paused)
        return;
    st->remaining_ns = st->work_ns == ENDLESS ? ENDLESS : around(t, st->work_ns) + 1;
    changed(m, t, card, true);
    expect_finish(m, t, card);
}

static void finish(struct sim *m, struct tenant *t, uint32_t card)
{
    struct stream *st = &t->stream[card];

    if (!st->has_work)
        return;
    changed(m, t, card, false);
    st->generation++;
    push(m, event_of(m, t, card, SUBMIT, m->now + around(t, st->pause_ns) + 1));
}

static void each_card(struct sim *m, struct tenant *t, uint32_t cards,
                      void (*act)(struct sim *m, struct tenant *t, uint32_t card))
{
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        if (cards >> card & 1)
            act(m, t, card);
}

/* `e` has the state that was seen, and since when: nothing is missed, however short it was. */
static void detect(struct sim *m, struct tenant *t, const struct event *e)
{
    struct stream *st = &t->stream[e->card];

    if (!(t->is.cards >> e->card & 1) || st->told == e->run)
        return;
    st->told = e->run;
    if (st->told) {
        sched_work_seen(&m->sched, m->now, t->is.id, e->card, e->since);
        return;
    }
    sched_work_done(&m->sched, m->now, t->is.id, e->card, e->since);
    if (t->is.class_id == SCHED_ONLINE && !t->paused && e->since > m->online_end[e->card])
        m->online_end[e->card] = e->since;
}

static void effect(struct sim *m, struct tenant *t, const struct event *e)
{
    struct event told = *e;

    if (!e->failed)
        t->running = e->run;
    each_card(m, t, t->is.cards, expect_finish);
    told.kind = TOLD;
    told.sequence = t->sequence++;
    told.since = m->now;
    told.at = m->now + within(t, m->options.confirm);
    if (told.at < t->effect_at)
        told.at = t->effect_at;
    t->effect_at = told.at;
    push(m, told);
}

static void tell(struct sim *m, struct tenant *t, const struct event *e)
{
    t->pending--;
    t->failed = e->failed;
    if (e->failed)
        sched_failed(&m->sched, m->now, t->is.id, e->run);
    else
        sched_applied(&m->sched, e->since, t->is.id, e->run);
}

static void handle(struct sim *m, const struct event *e)
{
    struct tenant *t = &m->tenant[e->tenant];

    if (!t->live || (e->kind == FINISH ? e->generation != t->stream[e->card].generation
                                       : e->generation != t->incarnation))
        return;
    m->events_done++;
    switch (e->kind) {
    case DETECT:
        detect(m, t, e);
        break;
    case EFFECT:
        effect(m, t, e);
        break;
    case TOLD:
        tell(m, t, e);
        break;
    case SUBMIT:
        if (t->is.cards >> e->card & 1)
            submit(m, t, e->card);
        break;
    case FINISH:
        finish(m, t, e->card);
    }
}

static void carry_out(struct sim *m, const struct sched_decision *d)
{
    struct tenant *t = sim_tenant(m, d->id);
    struct event e;

    if (!t) {
        sim_fail(m, "a decision for a stranger: %llu", (unsigned long long)d->id);
        return;
    }
    check_decision(m, t, d->run);
    m->log[m->logged++ % SIM_DECISIONS] = (struct sim_decision){m->now, d->id, d->run};
    e = event_of(m, t, 0, EFFECT, m->now + within(t, m->options.order));
    /* A resume under way is finished first, and told first. */
    if (e.at < t->effect_at)
        e.at = t->effect_at;
    t->effect_at = e.at;
    e.run = d->run;
    e.failed = next_random(&t->rng) % 100 < m->options.fail_percent;
    t->ever_ordered = true;
    t->wanted = d->run;
    t->ordered_at = m->now;
    t->pending++;
    t->switches++;
    push(m, e);
}

static void decide(struct sim *m)
{
    struct sched_decision out[SIM_TENANTS];
    uint32_t n, calls = 0;
    bool more;

    do {
        more = sched_decide(&m->sched, m->now, out, m->options.decide_max, &n, &m->wake_at);
        for (uint32_t i = 0; i < n; i++) {
            if (i && out[i - 1].run && !out[i].run)
                sim_fail(m, "a suspend after a resume");
            carry_out(m, &out[i]);
        }
        m->decided += n;
        if (++calls > 4 * SIM_TENANTS)
            sim_fail(m, "decisions never end");
    } while (more && !*m->error);
    if (m->wake_at <= m->now)
        sim_fail(m, "wakes in the past");
    check_decided(m);
}

static void advance(struct sim *m, uint64_t to)
{
    if (to == m->now)
        return;
    check_advance(m, to);
    for (uint32_t i = 0; i < m->tenants; i++) {
        struct tenant *t = &m->tenant[i];

        for (uint32_t card = 0; t->live && t->running && card < SCHED_CARDS; card++) {
            struct stream *st = &t->stream[card];

            if (st->has_work && st->remaining_ns != ENDLESS)
                st->remaining_ns -= to - m->now;
        }
    }
    m->now = to;
}

int sim_run(struct sim *m, uint64_t until)
{
    decide(m);
    while (!*m->error) {
        uint64_t at = m->wake_at;

        if (m->heaped && m->heap[0].at < at)
            at = m->heap[0].at;
        if (at > until)
            break;
        advance(m, at);
        while (m->heaped && m->heap[0].at <= m->now) {
            struct event e = pop(m);

            handle(m, &e);
        }
        decide(m);
    }
    if (!*m->error)
        advance(m, until);
    return *m->error ? -1 : 0;
}

struct sim *sim_new(const struct sched_config *config, const struct sim_options *options)
{
    struct sim *m = calloc(1, sizeof(*m));

    if (!m)
        abort();
    m->config = *config;
    m->options = *options;
    m->wake_at = UINT64_MAX;
    m->now = 1000 * NSEC_PER_MSEC;
    if (sched_init(&m->sched, config, m->now))
        sim_fail(m, "the configuration was refused");
    return m;
}

void sim_free(struct sim *m)
{
    free(m);
}

struct tenant *sim_tenant(struct sim *m, uint64_t id)
{
    for (uint32_t i = 0; i < m->tenants; i++)
        if (m->tenant[i].live && m->tenant[i].is.id == id)
            return &m->tenant[i];
    return NULL;
}

int sim_policy(struct sim *m, uint32_t card, enum sched_policy_id policy)
{
    int error = sched_card_policy(&m->sched, card, policy);

    if (!error)
        m->policy[card] = policy;
    return error;
}

int sim_add(struct sim *m, uint64_t id, uint32_t class_id, uint32_t cards, uint32_t quota, uint64_t work_ns,
            uint64_t pause_ns)
{
    struct sched_entity_config c = {.id = id, .class_id = class_id, .cards = cards, .quota_percent = quota};
    struct tenant *t = NULL;
    uint32_t incarnation;
    int error;

    for (uint32_t i = 0; i < SIM_TENANTS && !t; i++)
        if (!m->tenant[i].live)
            t = &m->tenant[i];
    if (!t)
        return -ENOSPC;
    error = sched_add(&m->sched, m->now, &c);
    if (error)
        return error;
    if (t == &m->tenant[m->tenants])
        m->tenants++;
    incarnation = t->incarnation + 1;
    *t = (struct tenant){.is = c, .live = true, .incarnation = incarnation, .rng = id ^ m->salt};
    t->policy = m->policy[__builtin_ctz(cards)];
    t->waits = UINT64_MAX;
    sim_measure_tenant(m, t);
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        if (cards >> card & 1)
            sim_work(m, id, card, work_ns, pause_ns);
    return 0;
}

int sim_work(struct sim *m, uint64_t id, uint32_t card, uint64_t work_ns, uint64_t pause_ns)
{
    struct tenant *t = sim_tenant(m, id);
    struct stream *st;
    uint64_t delay;

    if (!t)
        return -ENOENT;
    st = &t->stream[card];
    st->work_ns = work_ns;
    st->pause_ns = pause_ns;
    if (st->has_work && work_ns != ENDLESS && st->remaining_ns == ENDLESS) {
        st->remaining_ns = 1;
        expect_finish(m, t, card);
    }
    delay = work_ns == ENDLESS ? 0 : around(t, pause_ns);
    push(m, event_of(m, t, card, SUBMIT, m->now + delay));
    return 0;
}

int sim_change(struct sim *m, uint64_t id, uint32_t class_id, uint32_t cards, uint32_t quota)
{
    struct sched_entity_config c = {.id = id, .class_id = class_id, .cards = cards, .quota_percent = quota};
    struct tenant *t = sim_tenant(m, id);
    struct sched_entity_config was;
    int error;

    if (!t)
        return -ENOENT;
    was = t->is;
    error = sched_change(&m->sched, m->now, &c);
    if (error)
        return error;
    t->is = c;
    t->policy = m->policy[__builtin_ctz(cards)];
    for (uint32_t card = 0; card < SCHED_CARDS; card++) {
        struct stream *st = &t->stream[card];
        bool kept = cards >> card & 1, had = was.cards >> card & 1;

        if (st->told && was.class_id == SCHED_ONLINE && !t->paused && !(kept && class_id == SCHED_ONLINE))
            m->online_end[card] = m->now;
        if (had && !kept) {
            st->generation++;
            *st = (struct stream){.generation = st->generation};
        } else if (kept && !had) {
            const struct stream *like = &t->stream[__builtin_ctz(was.cards)];

            sim_work(m, id, card, like->work_ns ? like->work_ns : ENDLESS, like->pause_ns);
        }
    }
    t->waits = UINT64_MAX;
    sim_measure_tenant(m, t);
    return 0;
}

int sim_remove(struct sim *m, uint64_t id)
{
    struct tenant *t = sim_tenant(m, id);
    int error = sched_remove(&m->sched, m->now, id);

    if (error)
        return error;
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        if (t->stream[card].told && t->is.class_id == SCHED_ONLINE && !t->paused)
            m->online_end[card] = m->now;
    t->live = false;
    t->incarnation++;
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        t->stream[card].generation++;
    return 0;
}

int sim_pause(struct sim *m, uint64_t id, bool paused)
{
    struct tenant *t = sim_tenant(m, id);
    int error = sched_pause(&m->sched, m->now, id, paused);

    if (error || t->paused == paused)
        return error;
    t->paused = paused;
    t->waits = UINT64_MAX;
    for (uint32_t card = 0; card < SCHED_CARDS; card++) {
        if (paused && t->stream[card].told && t->is.class_id == SCHED_ONLINE)
            m->online_end[card] = m->now;
        if (!paused && t->stream[card].held_back)
            submit(m, t, card);
    }
    return 0;
}

int sim_configure(struct sim *m, const struct sched_config *config)
{
    int error = sched_configure(&m->sched, m->now, config);

    if (error)
        return error;
    m->config = *config;
    sim_measure(m);
    return 0;
}

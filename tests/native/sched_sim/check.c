#include "sim.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PPM = 1000000 };

/* What must hold at every moment, judged from what the simulated loop knows, and shares over every window. */

void sim_fail(struct sim *m, const char *format, ...)
{
    int used;
    va_list args;

    if (*m->error)
        return;
    used = snprintf(m->error, sizeof(m->error), "at %llu ns: ", (unsigned long long)m->now);
    va_start(args, format);
    vsnprintf(m->error + used, sizeof(m->error) - (size_t)used, format, args);
    va_end(args);
}

static bool told_busy(const struct tenant *t)
{
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        if (t->stream[card].told)
            return true;
    return false;
}

static bool has_work(const struct tenant *t)
{
    for (uint32_t card = 0; card < SCHED_CARDS; card++)
        if ((t->is.cards >> card & 1) && t->stream[card].has_work)
            return true;
    return false;
}

/* When its class is open, by what was told. */
static uint64_t offline_at(const struct sim *m, const struct tenant *t)
{
    uint64_t at = 0;

    if (t->is.class_id == SCHED_ONLINE)
        return 0;
    for (uint32_t card = 0; card < SCHED_CARDS; card++) {
        if (!(t->is.cards >> card & 1))
            continue;
        for (uint32_t i = 0; i < m->tenants; i++)
            if (m->tenant[i].live && !m->tenant[i].paused && m->tenant[i].is.class_id == SCHED_ONLINE &&
                m->tenant[i].stream[card].told)
                return UINT64_MAX;
        if (m->online_end[card] && m->online_end[card] + m->config.hold_ns > at)
            at = m->online_end[card] + m->config.hold_ns;
    }
    return at;
}

/* Both of one class, with a card in common. */
static bool rivals(const struct tenant *a, const struct tenant *b)
{
    return a != b && b->live && a->is.class_id == b->is.class_id && (a->is.cards & b->is.cards);
}

static bool occupies(const struct tenant *t)
{
    return t->is.class_id == SCHED_OFFLINE || told_busy(t);
}

void check_advance(struct sim *m, uint64_t to)
{
    int64_t dt = (int64_t)(to - m->now);
    uint64_t late = m->options.order.max_ns + m->options.confirm.max_ns + m->options.detect.max_ns + 1;

    for (uint32_t i = 0; i < m->tenants; i++) {
        struct tenant *t = &m->tenant[i];
        bool on_card = t->live && t->running && has_work(t);
        bool switching_in = t->live && t->wanted && t->pending && has_work(t);
        uint64_t at = offline_at(m, t);
        uint64_t open_ns = at <= m->now ? to - m->now : at < to ? to - at : 0;
        /* A policy's shares are of what the scheduler believes to be the tenant's: the switch-in is. */
        int64_t got = on_card || switching_in ? dt : 0;

        if (!t->live)
            continue;
        t->run_ns += on_card ? (uint64_t)dt : 0;
        t->slot_ns += (uint64_t)got;
        t->open_ns += open_ns;
        t->excess += got * PPM - (int64_t)(open_ns * t->share_ppm);
        if (t->excess < t->excess_low)
            t->excess_low = t->excess;
        if (t->excess > t->deficit_high)
            t->deficit_high = t->excess;
        if (t->excess - t->excess_low > t->excess_worst)
            t->excess_worst = t->excess - t->excess_low;
        if (t->deficit_high - t->excess > t->deficit_worst)
            t->deficit_worst = t->deficit_high - t->excess;
        if (t->policy == SCHED_FIXED && t->is.quota_percent < 100 && !m->options.fail_percent &&
            t->excess_worst > PPM * (int64_t)(t->burst_ns + late))
            sim_fail(m, "tenant %llu had %lld ns more than its quota of %u in some window",
                     (unsigned long long)t->is.id, (long long)t->excess_worst / PPM, t->is.quota_percent);
    }
}

void check_decision(struct sim *m, const struct tenant *t, bool run)
{
    unsigned long long id = t->is.id;

    if (t->ever_ordered && t->wanted == run && !t->failed)
        sim_fail(m, "tenant %llu is told to %s twice", id, run ? "run" : "suspend");
    if (!run)
        return;
    if (t->paused)
        sim_fail(m, "tenant %llu is resumed while it is paused", id);
    if (t->pending)
        sim_fail(m, "tenant %llu is resumed while its suspend is under way", id);
    if (offline_at(m, t) > m->now)
        sim_fail(m, "offline tenant %llu is resumed while online has its card", id);
    for (uint32_t i = 0; i < m->tenants && occupies(t); i++) {
        const struct tenant *r = &m->tenant[i];

        if (rivals(t, r) && occupies(r) && (r->running || r->pending || r->wanted))
            sim_fail(m, "tenant %llu is resumed while %llu may have its card", id,
                     (unsigned long long)r->is.id);
    }
}

static bool in_transition(const struct sim *m, const struct tenant *t)
{
    uint32_t domain = m->sched.rq[__builtin_ctz(t->is.cards)].domain;

    for (uint32_t i = 0; i < m->tenants; i++) {
        const struct tenant *r = &m->tenant[i];

        if (r->live && r->is.class_id == t->is.class_id && (r->is.cards & domain) &&
            (r->pending || r->failed || !r->ever_ordered))
            return true;
    }
    return false;
}

/* It may run and does not: another must have its cards, and not for too long. */
static void check_waiting(struct sim *m, struct tenant *t)
{
    struct sched_state state;
    bool occupied = false;

    sched_state(&m->sched, t->is.id, &state);
    if (t->wanted || t->paused || !told_busy(t) || offline_at(m, t) > m->now || state.throttled ||
        t->failed || (m->options.fail_percent && state.why == WHY_FAILED)) {
        t->waits = UINT64_MAX;
        return;
    }
    if (t->waits == UINT64_MAX)
        t->waits = m->now;
    if (m->options.starve_ns && m->now - t->waits > m->options.starve_ns)
        sim_fail(m, "tenant %llu waits since %llu", (unsigned long long)t->is.id,
                 (unsigned long long)t->waits);
    for (uint32_t i = 0; i < m->tenants; i++)
        occupied |= rivals(t, &m->tenant[i]) && m->tenant[i].wanted && told_busy(&m->tenant[i]);
    if (!occupied && !in_transition(m, t))
        sim_fail(m, "tenant %llu could run, and nobody has its cards", (unsigned long long)t->is.id);
}

static void check_rivals(struct sim *m, const struct tenant *t)
{
    if (!t->wanted || !occupies(t))
        return;
    for (uint32_t i = 0; i < m->tenants; i++) {
        const struct tenant *r = &m->tenant[i];

        if (rivals(t, r) && r->wanted && occupies(r) && !r->failed && !t->failed)
            sim_fail(m, "tenants %llu and %llu are both enabled", (unsigned long long)t->is.id,
                     (unsigned long long)r->is.id);
    }
}

static void check_watch(struct sim *m, const struct tenant *t)
{
    if (t->is.class_id != SCHED_OFFLINE || !(t->running || t->wanted))
        return;
    for (uint32_t i = 0; i < m->tenants; i++) {
        const struct tenant *r = &m->tenant[i];

        if (!r->live || r->paused || r->is.class_id != SCHED_ONLINE)
            continue;
        for (uint32_t card = 0; card < SCHED_CARDS; card++)
            if ((t->is.cards & r->is.cards) >> card & 1 && offline_at(m, t) <= m->now &&
                sched_watch(&m->sched, card) != WATCH_FAST)
                sim_fail(m, "offline %llu runs and card %u is not watched", (unsigned long long)t->is.id,
                         card);
    }
}

void check_decided(struct sim *m)
{
    for (uint32_t i = 0; i < m->tenants; i++) {
        struct tenant *t = &m->tenant[i];
        unsigned long long id = t->is.id;
        uint64_t at;

        if (!t->live)
            continue;
        if (t->paused && (t->wanted || !t->ever_ordered) && !t->failed)
            sim_fail(m, "tenant %llu stays enabled while it is paused", id);
        at = offline_at(m, t);
        if (at > m->now && (t->wanted || !t->ever_ordered) && !t->failed)
            sim_fail(m, "offline tenant %llu stays enabled beside online work", id);
        if (at > m->now && at != UINT64_MAX && told_busy(t) && !t->paused && m->wake_at > at)
            sim_fail(m, "no wake-up for the end of the hold, for %llu", id);
        check_waiting(m, t);
        check_rivals(m, t);
        check_watch(m, t);
    }
}

/* The functions of engine.h that return counters. */
#define _GNU_SOURCE
#include "engine.h"
#include "engine_private.h"
#include <errno.h>

static void add(uint64_t *to, const atomic_uint_least64_t *counts, int n)
{
    for (int i = 0; i < n; i++)
        to[i] += atomic_load_explicit(&counts[i], memory_order_relaxed);
}

static void add_tenant(struct mgpu_stats *to, const struct tenant_stats *s)
{
    add(to->refused, s->refused, MGPU_REFUSED_KINDS);
    add(to->audit_mismatches, s->audit_mismatches, MAX_CARDS);
    add(to->parked, s->parked, MGPU_LATENCY_BUCKETS);
    add(&to->parked_ns, &s->parked_ns, 1);
}

void stats_keep_tenant(struct mgpu_engine *e, const struct tenant *t)
{
    assert_held(&e->lock);
    add_tenant(&e->ended, &t->stats);
}

void stats_keep_listener(struct mgpu_engine *e, const struct listener *l)
{
    assert_held(&e->lock);
    e->ended.calls += stats_calls(&l->stats);
}

void stats_watch_listeners(struct mgpu_engine *e)
{
    uint64_t now = loop_now_ns(), oldest = 0;
    WITH_ENGINE(e);

    for (struct listener *l = e->listeners; l; l = l->next) {
        uint64_t since = stats_serving_since_ns(&l->stats, now);

        if (since && (!oldest || since < oldest))
            oldest = since;
    }
    atomic_store(&e->serving_since_ns, oldest);
}

int mgpu_engine_pulse(struct mgpu_engine *e, struct mgpu_pulse *out)
{
    uint64_t since = atomic_load(&e->serving_since_ns), now = loop_now_ns();

    out->turns = atomic_load_explicit(&e->loop.stats.turns, memory_order_relaxed);
    out->serving_ns = since && now > since ? now - since : 0;
    loop_kick(&e->loop);
    return 0;
}

int mgpu_engine_stats(struct mgpu_engine *e, struct mgpu_stats *out)
{
    WITH_ENGINE(e);

    *out = e->ended;
    loop_stats_read(&e->loop.stats, out);
    for (uint32_t i = 0; i < MAX_TENANTS; i++)
        if (e->tenant[i].id)
            add_tenant(out, &e->tenant[i].stats);
    for (const struct listener *l = e->listeners; l; l = l->next) {
        out->calls += stats_calls(&l->stats);
        out->listeners++;
    }
    return 0;
}

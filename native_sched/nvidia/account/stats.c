#include "stats.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>

const uint64_t mgpu_parked_bounds_ns[MGPU_LATENCY_BUCKETS - 1] = {
    5000000, 20000000, 100000000, 250000000, 500000000, 1000000000, 2500000000, 5000000000, 15000000000,
};

static enum mgpu_refused kind_of(uint32_t rm_status)
{
    switch (rm_status) {
    case NV_ERR_NO_MEMORY:
        return MGPU_REFUSED_MEMORY;
    case NV_ERR_INVALID_DEVICE:
        return MGPU_REFUSED_CARD;
    case NV_ERR_INVALID_CLASS:
        return MGPU_REFUSED_CLASS;
    case NV_ERR_INVALID_CLIENT:
    case NV_ERR_INVALID_OBJECT_PARENT:
    case NV_ERR_INVALID_OBJECT_HANDLE:
        return MGPU_REFUSED_HANDLE;
    case NV_ERR_INSUFFICIENT_PERMISSIONS:
        return MGPU_REFUSED_SCHEDULING;
    case NV_ERR_INVALID_ARGUMENT:
        return MGPU_REFUSED_FORM;
    default:
        return MGPU_REFUSED_UNSUPPORTED;
    }
}

static void add_one(atomic_uint_least64_t *count)
{
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

void stats_refused(struct tenant_stats *s, uint32_t rm_status)
{
    add_one(&s->refused[kind_of(rm_status)]);
}

void stats_refused_to_share(struct tenant_stats *s)
{
    add_one(&s->refused[MGPU_REFUSED_SHARE]);
}

void stats_failed(struct tenant_stats *s, int error)
{
    if (error == -EPERM)
        add_one(&s->refused[MGPU_REFUSED_PERMISSION]);
    else if (error == -ENOTTY)
        add_one(&s->refused[MGPU_REFUSED_UNSUPPORTED]);
}

void stats_audit_mismatch(struct tenant_stats *s, uint32_t card)
{
    add_one(&s->audit_mismatches[card]);
}

void stats_parked(struct tenant_stats *s, uint64_t ns)
{
    add_one(&s->parked[mgpu_latency_bucket(mgpu_parked_bounds_ns, ns)]);
    atomic_fetch_add_explicit(&s->parked_ns, ns, memory_order_relaxed);
}

uint64_t stats_calls(const struct listener_stats *s)
{
    return atomic_load_explicit(&s->steps, memory_order_relaxed) / 2;
}

uint64_t stats_serving_since_ns(struct listener_stats *s, uint64_t now_ns)
{
    uint64_t steps = atomic_load_explicit(&s->steps, memory_order_relaxed);

    if (steps != s->seen_steps) {
        s->seen_steps = steps;
        s->seen_ns = now_ns;
    }
    return steps % 2 ? s->seen_ns : 0;
}

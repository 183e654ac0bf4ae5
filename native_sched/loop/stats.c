#include "stats.h"

const uint64_t mgpu_latency_bounds_ns[MGPU_LATENCY_BUCKETS - 1] = {
    50000, 100000, 200000, 300000, 500000, 1000000, 2000000, 5000000, 10000000,
};

static void note_latency(struct loop_stats *s, uint64_t ns)
{
    uint64_t sum = atomic_load_explicit(&s->preemption_sum_ns, memory_order_relaxed);

    loop_stats_count(&s->preemption[mgpu_latency_bucket(mgpu_latency_bounds_ns, ns)]);
    atomic_store_explicit(&s->preemption_sum_ns, sum + ns, memory_order_relaxed);
}

void loop_stats_outcome(struct loop_stats *s, bool run, uint32_t why, int error, uint64_t at_ns)
{
    if (error < 0)
        loop_stats_count(run ? &s->resume_failures : &s->suspend_failures);
    else if (!run && why == MGPU_WHY_PREEMPTED)
        note_latency(s, at_ns - s->decided_ns);
}

static uint64_t read_one(const atomic_uint_least64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

void loop_stats_read(const struct loop_stats *s, struct mgpu_stats *out)
{
    out->turns = read_one(&s->turns);
    out->polls = read_one(&s->polls);
    out->suspend_failures = read_one(&s->suspend_failures);
    out->resume_failures = read_one(&s->resume_failures);
    for (int i = 0; i < MGPU_LATENCY_BUCKETS; i++)
        out->preemption[i] = read_one(&s->preemption[i]);
    out->preemption_sum_ns = read_one(&s->preemption_sum_ns);
}

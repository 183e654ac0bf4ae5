/* Counters of the scheduler's thread, for operators: it writes them relaxed, any thread reads them. */
#ifndef MGPU_LOOP_STATS_H
#define MGPU_LOOP_STATS_H
#include "native_sched/core/engine_types.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct loop_stats {
    atomic_uint_least64_t turns; /* a thread that is kicked and does not turn is stuck */
    atomic_uint_least64_t polls; /* of a card */
    atomic_uint_least64_t suspend_failures, resume_failures;
    atomic_uint_least64_t preemption[MGPU_LATENCY_BUCKETS], preemption_sum_ns;
    uint64_t decided_ns; /* the thread's own: when what it carries out now was decided */
};

static inline void loop_stats_count(atomic_uint_least64_t *count)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* A decision was applied, or failed (error < 0), at at_ns; why: enum mgpu_why, of a suspend. */
void loop_stats_outcome(struct loop_stats *s, bool run, uint32_t why, int error, uint64_t at_ns);
/* All but the counters of the mediator. */
void loop_stats_read(const struct loop_stats *s, struct mgpu_stats *out);
#endif

/* Counts of the mediator's, for operators: calls answered, calls refused, and how long a thread has been at
 * one call. Relaxed throughout: they order nothing. */
#ifndef MGPU_BOUNDARY_STATS_H
#define MGPU_BOUNDARY_STATS_H
#include "native_sched/core/engine_types.h"
#include <stdatomic.h>
#include <stdint.h>

/* Counts of one tenant, by enum mgpu_refused. Its listeners' threads all write here, but only when they
 * refuse. */
struct tenant_stats {
    atomic_uint_least64_t refused[MGPU_REFUSED_KINDS];
    atomic_uint_least64_t audit_mismatches[MGPU_CARDS_MAX];
    /* Calls that were parked and are answered, by how long: within mgpu_parked_bounds_ns[]. */
    atomic_uint_least64_t parked[MGPU_LATENCY_BUCKETS], parked_ns;
};

/* Counts of one listener's thread. It alone writes `steps`, so a plain increment without a locked instruction
 * will do. */
struct listener_stats {
    atomic_uint_least64_t steps;  /* calls taken up plus calls answered: odd while one is served */
    uint64_t seen_steps, seen_ns; /* the watcher's last change of it */
};

static inline void stats_step(struct listener_stats *s)
{
    uint64_t steps = atomic_load_explicit(&s->steps, memory_order_relaxed);

    atomic_store_explicit(&s->steps, steps + 1, memory_order_relaxed);
}

/* mgpu refused with this RM status. Not for a status that the driver gave. */
void stats_refused(struct tenant_stats *s, uint32_t rm_status);
/* mgpu refused what only whole cards get. */
void stats_refused_to_share(struct tenant_stats *s);
/* The call fails with this errno; counted where that is a no of mgpu's. */
void stats_failed(struct tenant_stats *s, int error);

/* The driver counts more to the tenant on that card than the ledger. */
void stats_audit_mismatch(struct tenant_stats *s, uint32_t card);

/* A call is answered that was parked for so long. */
void stats_parked(struct tenant_stats *s, uint64_t ns);

uint64_t stats_calls(const struct listener_stats *s);

/* Since when the thread serves the call it is at, as far as this and earlier looks tell; 0: it serves none.
 * To be called by one watcher. */
uint64_t stats_serving_since_ns(struct listener_stats *s, uint64_t now_ns);
#endif

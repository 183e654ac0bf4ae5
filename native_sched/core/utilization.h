/* How much of a card one tenant had, over the last ten seconds: the samples that a program in its container
 * reads. The scheduler's thread writes at each poll; any thread reads, without a lock. Times are of the
 * monotonic clock. */
#ifndef MGPU_UTILIZATION_H
#define MGPU_UTILIZATION_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* As many samples of as long a time as NVIDIA's driver keeps
 * (NV2080_CTRL_PERF_GPUMON_SAMPLE_COUNT_PERFMON_UTIL). */
enum { UTILIZATION_SAMPLES = 72, UTILIZATION_WHOLE = 10000 };
enum { UTILIZATION_SLOTS = UTILIZATION_SAMPLES + 1 }; /* one is being filled */
#define UTILIZATION_WINDOW_NS UINT64_C(10000000000)
#define UTILIZATION_SLOT_NS   (UTILIZATION_WINDOW_NS / UTILIZATION_SAMPLES)

struct utilization_of_card {
    /* The writer's own. */
    uint64_t noted_ns;         /* the last poll; 0: not polled */
    uint64_t seen_ns, used_ns; /* of the slot that noted_ns lies in: polled, and used times 100 / `most` */
    /* Slot number << 16 | hundredths of a percent, at slot number modulo their count. */
    atomic_uint_least64_t slot[UTILIZATION_SLOTS];
};

struct utilization {
    atomic_bool kept;                      /* a scheduler keeps this account */
    atomic_uint_least64_t wanted_until_ns; /* a program in the container may ask until then */
    atomic_int_least64_t wall_ahead_ns;    /* of the monotonic clock, as the samples have it */
    struct utilization_of_card card[32];
};

struct utilization_sample {
    uint64_t end_ns;
    uint32_t hundredths; /* of a percent of what the tenant can have */
};

/* Since the last call of this or utilization_pause() the tenant had used_ns of the card: it has work there
 * and was let run. Less than 0 is given back. most_percent: what it can have of the card's time at most. */
void utilization_note(struct utilization_of_card *u, uint64_t now, int64_t used_ns, uint32_t most_percent);
/* The card is not polled from now on. */
void utilization_pause(struct utilization_of_card *u);

/* Oldest first, each over the second before its end; returns how many, at least 1. idle: the tenant can have
 * no work on the card now, so that unpolled time was idle. The slot of now is returned only where there is no
 * other, and 0 where nothing is known: a reader of such a ring expects a sample. */
uint32_t utilization_read(const struct utilization_of_card *u, uint64_t now, bool idle,
                          struct utilization_sample *out);

/* Samples are used until then; true: the scheduler has to be woken, since they were unused so far. */
bool utilization_want(struct utilization *u, uint64_t now, uint64_t until_ns);
bool utilization_wanted(const struct utilization *u, uint64_t now);

/* The offset from the samples' times to the wall clock, which was wall_ns at now: the same for the same
 * sample, unless the wall clock was set. */
int64_t utilization_wall_ahead(struct utilization *u, uint64_t now, uint64_t wall_ns);
#endif

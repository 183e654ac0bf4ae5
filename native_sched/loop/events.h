/* The latest events of the scheduler, for operators: a ring with one writer. */
#ifndef MGPU_EVENTS_H
#define MGPU_EVENTS_H
#include "native_sched/core/engine_types.h"
#include <pthread.h>

enum { EVENTS_KEPT = 1 << 16 };

struct events {
    pthread_mutex_t lock;
    uint64_t count; /* ever written: number of the next one */
    struct mgpu_sched_event *ring;
};

int events_init(struct events *e);
void events_destroy(struct events *e);
void events_add(struct events *e, const struct mgpu_sched_event *event);
uint32_t events_read(struct events *e, uint64_t since, struct mgpu_sched_event *out, uint32_t max,
                     uint64_t *next, uint64_t *lost);
#endif

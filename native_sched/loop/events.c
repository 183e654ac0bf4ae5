#include "events.h"
#include "base/mutex.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

int events_init(struct events *e)
{
    *e = (struct events){.ring = calloc(EVENTS_KEPT, sizeof(*e->ring))};
    mutex_init_inheriting(&e->lock);
    return e->ring ? 0 : -ENOMEM;
}

void events_destroy(struct events *e)
{
    free(e->ring);
    pthread_mutex_destroy(&e->lock);
}

void events_add(struct events *e, const struct mgpu_sched_event *event)
{
    LOCKED(&e->lock);
    e->ring[e->count++ % EVENTS_KEPT] = *event;
}

uint32_t events_read(struct events *e, uint64_t since, struct mgpu_sched_event *out, uint32_t max,
                     uint64_t *next, uint64_t *lost)
{
    enum { AT_ONCE = 128 }; /* the writer does not wait for long */
    uint32_t n = 0;
    bool more = true;

    for (*lost = 0; more; *next = since) {
        uint64_t oldest, skipped;

        pthread_mutex_lock(&e->lock);
        oldest = e->count > EVENTS_KEPT ? e->count - EVENTS_KEPT : 0;
        skipped = since < oldest ? oldest - since : 0;
        *lost += skipped;
        since += skipped;
        for (int i = 0; i < AT_ONCE && n < max && since < e->count; i++)
            out[n++] = e->ring[since++ % EVENTS_KEPT];
        more = n < max && since < e->count;
        pthread_mutex_unlock(&e->lock);
    }
    return n;
}

/* Polls what tenants have: by the driver's count, and what they have mapped from nvidia-uvm, since munmap()
 * is not notified. An idle tenant may have had memory made in a race, or by others to which it has given its
 * files. How much a tenant maps decides how long its poll takes, so the poller is a thread of its own that
 * holds none of the engine's locks meanwhile. */
#define _GNU_SOURCE
#include "engine_private.h"
#include "native_sched/nvidia/boundary/continued/continued.h"
#include "native_sched/nvidia/boundary/managed/managed.h"
#include <sys/eventfd.h>

/* The polls of one tenant take at most this part of the thread's time. */
enum { POLLER_PARTS = 50 };

/* From one look at what the driver says to the next, and where all that a tenant has is to be freed. */
static const uint64_t audit_gap_ns = 1000ull * 1000 * 1000, freeing_gap_ns = 50 * 1000 * 1000;

static bool audit_is_due(const struct tenant *t, uint64_t now)
{
    uint64_t gap_ns = atomic_load(&t->unaccounted_bytes) ? freeing_gap_ns : audit_gap_ns;

    return t->id && !t->lost && (t->objects.live || !audit_passed(t)) && now - t->audited_ns >= gap_ns;
}

static bool poll_is_due(const struct mgpu_engine *e, const struct tenant *t, uint64_t now)
{
    uint64_t gap_ns = t->poll_took_ns * POLLER_PARTS;

    if (!t->id || t->lost || !t->managed || !atomic_load(&t->managed->watched))
        return false;
    return now - t->polled_ns >= (gap_ns > e->managed_gap_ns ? gap_ns : e->managed_gap_ns);
}

/* The tenant that was polled least recently, of those that are due. */
static struct tenant *next_due(struct mgpu_engine *e)
{
    struct tenant *found = NULL;
    uint64_t now = loop_now_ns();

    assert_held(&e->lock);
    for (struct tenant *t = e->tenant; t < e->tenant + MAX_TENANTS; t++)
        if ((poll_is_due(e, t, now) || audit_is_due(t, now)) && (!found || t->polled_ns < found->polled_ns))
            found = t;
    return found;
}

/* Drops mgpu_engine.lock for the poll. */
static void poll_tenant(struct mgpu_engine *e, struct tenant *t)
{
    uint64_t began = loop_now_ns();
    bool polls = poll_is_due(e, t, began), audits = audit_is_due(t, began);

    assert_held(&e->lock);
    e->managed_poller.at = t;
    pthread_mutex_unlock(&e->lock);
    if (audits) {
        audit_watch(&e->mediator, t);
        t->audited_ns = began = loop_now_ns();
    }
    if (polls)
        managed_poll(&e->mediator, t);
    pthread_mutex_lock(&e->lock);
    e->managed_poller.at = NULL;
    if (polls) {
        t->polled_ns = loop_now_ns();
        t->poll_took_ns = t->polled_ns - began;
    }
    if (e->managed_poller.awaited)
        eventfd_write(e->events, 1);
    e->managed_poller.awaited = false;
}

static void *watch(void *arg)
{
    struct mgpu_engine *e = arg;
    struct tenant *t;
    WITH_ENGINE(e);

    while (!e->managed_poller.over) {
        if ((t = next_due(e)))
            poll_tenant(e, t);
        else
            pthread_cond_wait(&e->managed_poller.due, &e->lock);
    }
    return NULL;
}

int managed_poller_start(struct mgpu_engine *e)
{
    int error;

    pthread_cond_init(&e->managed_poller.due, NULL);
    if ((error = -pthread_create(&e->managed_poller.thread, NULL, watch, e)) < 0)
        pthread_cond_destroy(&e->managed_poller.due);
    return error;
}

void managed_poller_stop(struct mgpu_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->managed_poller.over = true;
    pthread_cond_signal(&e->managed_poller.due);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->managed_poller.thread, NULL);
    pthread_cond_destroy(&e->managed_poller.due);
}

void managed_poller_wake(struct mgpu_engine *e)
{
    WITH_ENGINE(e);

    if (!e->managed_poller.at && next_due(e))
        pthread_cond_signal(&e->managed_poller.due);
}

bool managed_poller_at(struct mgpu_engine *e, const struct tenant *t)
{
    assert_held(&e->lock);
    if (e->managed_poller.at != t)
        return false;
    e->managed_poller.awaited = true;
    return true;
}

/* Looks now and then at what tenants have had mapped by nvidia-uvm: munmap() is not seen, nor what a tenant that never
 * calls again has had mapped in a race. A tenant decides how long a look takes, by how much it maps. So the looks have a
 * thread of their own, which holds nothing of the engine meanwhile. */
#define _GNU_SOURCE
#include "boundary/managed.h"
#include "engine_private.h"
#include "loop/entities.h"
#include <sys/eventfd.h>

/* A tenant has the thread to itself for at most one part in so many. */
enum { LOOKS_PARTS = 50 };

static bool is_due(const struct mgpu_engine *e, const struct tenant *t, uint64_t now)
{
    uint64_t gap_ns = t->look_took_ns * LOOKS_PARTS;

    if (!t->id || t->lost || !t->managed || !atomic_load(&t->managed->watched))
        return false;
    return now - t->looked_ns >= (gap_ns > e->managed_gap_ns ? gap_ns : e->managed_gap_ns);
}

/* The one of those that nobody has looked at for longest. The engine's lock is held. */
static struct tenant *next_due(struct mgpu_engine *e)
{
    struct tenant *found = NULL;
    uint64_t now = loop_now_ns();

    for (struct tenant *t = e->tenant; t < e->tenant + MAX_TENANTS; t++)
        if (is_due(e, t, now) && (!found || t->looked_ns < found->looked_ns))
            found = t;
    return found;
}

/* The engine's lock is held, and let go for the look. */
static void look(struct mgpu_engine *e, struct tenant *t)
{
    uint64_t began = loop_now_ns();

    e->looks.at = t;
    pthread_mutex_unlock(&e->lock);
    managed_watch(&e->mediator, t);
    pthread_mutex_lock(&e->lock);
    e->looks.at = NULL;
    t->looked_ns = loop_now_ns();
    t->look_took_ns = t->looked_ns - began;
    if (e->looks.awaited)
        eventfd_write(e->events, 1);
    e->looks.awaited = false;
}

static void *watch(void *arg)
{
    struct mgpu_engine *e = arg;
    struct tenant *t;
    WITH_ENGINE(e);

    while (!e->looks.over) {
        if ((t = next_due(e)))
            look(e, t);
        else
            pthread_cond_wait(&e->looks.due, &e->lock);
    }
    return NULL;
}

int managed_looks_start(struct mgpu_engine *e)
{
    int error;

    pthread_cond_init(&e->looks.due, NULL);
    if ((error = -pthread_create(&e->looks.thread, NULL, watch, e)) < 0)
        pthread_cond_destroy(&e->looks.due);
    return error;
}

void managed_looks_stop(struct mgpu_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->looks.over = true;
    pthread_cond_signal(&e->looks.due);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->looks.thread, NULL);
    pthread_cond_destroy(&e->looks.due);
}

void managed_looks_wake(struct mgpu_engine *e)
{
    WITH_ENGINE(e);

    if (!e->looks.at && next_due(e))
        pthread_cond_signal(&e->looks.due);
}

bool managed_looks_at(struct mgpu_engine *e, const struct tenant *t)
{
    if (e->looks.at != t)
        return false;
    e->looks.awaited = true;
    return true;
}

/* Ends listeners that have hung up. They are polled a few times a second, since a thread that waits on a
 * seccomp listener is woken by every notification too, and each mediated call would pay for that. */
#define _GNU_SOURCE
#include "engine_private.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>

enum { POLL_MS = 100, RETRY_MS = 2 };

static void forget(struct mgpu_engine *e, struct listener *l)
{
    struct listener **at;

    pthread_join(l->thread, NULL);
    pthread_mutex_lock(&e->lock);
    for (at = &e->listeners; *at && *at != l; at = &(*at)->next)
        ;
    if (*at)
        *at = l->next;
    stats_keep_listener(e, l);
    pthread_mutex_unlock(&e->lock);
    close(l->fd);
    if (atomic_load(&e->stopping))
        store_close(&l->store);
    else
        store_remove(&l->store);
    pthread_mutex_lock(&l->tenant->lock);
    l->tenant->listeners--;
    pthread_mutex_unlock(&l->tenant->lock);
    free(l);
    eventfd_write(e->events, 1);
}

static bool hung_up(const struct listener *l)
{
    struct pollfd p = {.fd = l->fd};

    return poll(&p, 1, 0) > 0 && p.revents & POLLHUP;
}

/* Joins the threads that ended. Returns how long to wait before the next poll, in ms; -1: until woken. */
static int sweep(struct mgpu_engine *e)
{
    struct listener *l, *done;
    int wait_ms;

    do {
        done = NULL;
        wait_ms = -1;
        pthread_mutex_lock(&e->lock);
        for (l = e->listeners; l; l = l->next) {
            if (atomic_load(&l->done)) {
                done = l;
                break;
            }
            if (atomic_load(&e->stopping) || hung_up(l)) {
                listener_interrupt(l);
                wait_ms = RETRY_MS;
            } else if (wait_ms < 0) {
                wait_ms = POLL_MS;
            }
        }
        pthread_mutex_unlock(&e->lock);
        if (done)
            forget(e, done);
    } while (done);
    stats_watch_listeners(e);
    managed_poller_wake(e);
    return wait_ms;
}

static void *reap(void *arg)
{
    struct mgpu_engine *e = arg;
    struct pollfd wake = {.fd = e->wake, .events = POLLIN};
    bool stopping = false;
    int wait_ms = -1;
    uint64_t count;

    /* The last poll begins after the stop: a listener may have been added since the one before. */
    while (wait_ms >= 0 || !stopping) {
        stopping = atomic_load(&e->stopping);
        if ((wait_ms >= 0 || !stopping) && poll(&wake, 1, wait_ms) > 0 &&
            read(e->wake, &count, sizeof(count)) < 0 && errno != EAGAIN)
            abort();
        wait_ms = sweep(e);
    }
    return NULL;
}

int reaper_start(struct mgpu_engine *e)
{
    int error;

    e->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->wake < 0)
        return -errno;
    if ((error = -pthread_create(&e->reaper, NULL, reap, e)) < 0)
        close(e->wake);
    return error;
}

void reaper_stop(struct mgpu_engine *e)
{
    atomic_store(&e->stopping, true);
    reaper_wake(e);
    pthread_join(e->reaper, NULL);
    close(e->wake);
}

void reaper_wake(struct mgpu_engine *e)
{
    eventfd_write(e->wake, 1);
}

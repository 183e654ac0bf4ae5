/* Ends the charges of closed files.
 *
 * A charge ends once RM has freed what it is for, and between the tenant's own calls. The tenant decides how
 * long these take, for one by how much it maps. So the thread that watches the driver waits for no tenant.
 * Files that cannot be reaped at once are deferred to another thread, which waits a little for each tenant in
 * turn. The files of one tenant are reaped in the order in which they were closed. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "engine_private.h"
#include "native_sched/nvidia/boundary/rm/handlers.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

enum { TURN_MS = 2, FIRST_ROOM = 64, NS_PER_MS = 1000 * 1000 };
/* How long a charge may outlive the last close. RM defers the end of clients while others call it, so it is
 * asked whether they are gone. Exports are freed before that, and RM cannot be asked about them. */
static const uint64_t ends_within_ms[] = {
    [FILE_HOLDS_NOTHING] = 0, [FILE_HOLDS_EXPORTS] = 200, [FILE_HOLDS_CLIENTS] = 10000};

static struct tenant *tenant_of(struct mgpu_engine *e, uint64_t id)
{
    struct open_file file;

    return files_by_id(&e->files, id, &file) ? file.tenant : NULL;
}

static void rest(uint32_t ms)
{
    const struct timespec time = {.tv_nsec = (long)ms * NS_PER_MS};

    nanosleep(&time, NULL);
}

static bool is_freed(struct mgpu_engine *e, const struct open_file *file, uint64_t since_ns)
{
    return monotonic_ns() - since_ns >= ends_within_ms[account_file_holds(&e->mediator, file)] * NS_PER_MS;
}

static bool hold_calls(struct tenant *t, uint32_t wait_ms)
{
    struct timespec until = monotonic_after_ms(wait_ms);

    return pthread_mutex_clocklock(&t->calls, CLOCK_MONOTONIC, &until) == 0;
}

/* False when RM has not freed it, its tenant is at a call all that time, or was recovered in this instant: to
 * be tried again.
 * mgpud is notified of the last file of a tenant without processes only, since a program that starts closes
 * files by the dozen. */
static bool reap_file(struct mgpu_engine *e, const struct closed_file *closed, uint32_t wait_ms)
{
    struct open_file file;
    bool known = files_by_id(&e->files, closed->id, &file), taken;
    struct tenant *t = known ? file.tenant : NULL;

    if (t && !is_freed(e, &file, closed->since_ns)) {
        rest(wait_ms);
        return false;
    }
    if (t && !hold_calls(t, wait_ms))
        return false;
    taken = files_take_of(&e->files, closed->id, t, &file);
    if (!taken || !t || account_file_closed(&e->mediator, &file))
        eventfd_write(e->events, 1);
    if (t)
        pthread_mutex_unlock(&t->calls);
    return taken || !known;
}

/* False when there is no room for it. */
static bool defer(struct file_reaper *f, const struct closed_file *closed)
{
    uint32_t room = f->room ? 2 * f->room : FIRST_ROOM;
    struct closed_file *more;

    if (f->n == f->room) {
        if (!(more = reallocarray(f->file, room, sizeof(*more))))
            return false;
        f->file = more;
        f->room = room;
    }
    f->file[f->n++] = *closed;
    pthread_cond_signal(&f->more);
    return true;
}

static void reap_or_defer(struct mgpu_engine *e, uint64_t id)
{
    const struct closed_file closed = {id, monotonic_ns()};
    struct file_reaper *f = &e->file_reaper;
    bool done;

    pthread_mutex_lock(&f->lock);
    done = (!f->n && reap_file(e, &closed, 0)) || defer(f, &closed);
    pthread_mutex_unlock(&f->lock);
    while (!done)
        done = reap_file(e, &closed, TURN_MS);
}

static void *watch(void *arg)
{
    struct mgpu_engine *e = arg;
    int64_t id;

    while ((id = e->mediator.ops->next_closed(e->mediator.driver)) >= 0)
        reap_or_defer(e, (uint64_t)id);
    atomic_store(&e->driver_lost, true);
    eventfd_write(e->events, 1);
    return NULL;
}

/* One turn for each tenant whose files are in the list. Drops the list's lock for each, so that others can
 * append. */
static void reap_in_turn(struct mgpu_engine *e)
{
    struct file_reaper *f = &e->file_reaper;
    uint32_t kept = 0, i;

    assert_held(&f->lock);
    memset(f->busy, 0, sizeof(f->busy));
    for (i = 0; i < f->n && !f->over; i++) {
        struct closed_file closed = f->file[i];
        const struct tenant *t = tenant_of(e, closed.id);
        bool *busy = t ? &f->busy[t - e->tenant] : NULL;

        if (!busy || !*busy) {
            pthread_mutex_unlock(&f->lock);
            bool reaped = reap_file(e, &closed, TURN_MS);
            pthread_mutex_lock(&f->lock);
            if (reaped)
                continue;
            if (busy)
                *busy = true;
        }
        f->file[kept++] = closed;
    }
    memmove(f->file + kept, f->file + i, (f->n - i) * sizeof(*f->file));
    f->n -= i - kept;
}

static void *reap_deferred(void *arg)
{
    struct mgpu_engine *e = arg;
    struct file_reaper *f = &e->file_reaper;
    LOCKED_(reaper_held, &f->lock);

    while (!f->over) {
        if (f->n)
            reap_in_turn(e);
        else
            pthread_cond_wait(&f->more, &f->lock);
    }
    return NULL;
}

static void stop_deferred(struct file_reaper *f)
{
    pthread_mutex_lock(&f->lock);
    f->over = true;
    pthread_cond_signal(&f->more);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->late, NULL);
    pthread_cond_destroy(&f->more);
    pthread_mutex_destroy(&f->lock);
    free(f->file);
}

int file_reaper_start(struct mgpu_engine *e)
{
    struct file_reaper *f = &e->file_reaper;
    int error;

    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->more, NULL);
    if ((error = -pthread_create(&f->late, NULL, reap_deferred, e)) < 0) {
        pthread_cond_destroy(&f->more);
        pthread_mutex_destroy(&f->lock);
        return error;
    }
    if ((error = -pthread_create(&f->watch, NULL, watch, e)) < 0)
        stop_deferred(f);
    return error;
}

void file_reaper_stop(struct mgpu_engine *e)
{
    e->mediator.ops->stop_watch(e->mediator.driver);
    pthread_join(e->file_reaper.watch, NULL);
    stop_deferred(&e->file_reaper);
}

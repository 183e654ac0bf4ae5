/* Ends the charges of files as the driver says that they are gone.
 *
 * A charge ends between the tenant's own calls, and these take as long as the tenant has them take: by what it maps, for one. So
 * who hears of the driver's files waits for none of them. What cannot end at once is left to another thread, which waits a little
 * for each tenant in turn; a tenant's files end in the order in which they went. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "engine_private.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

enum { TURN_MS = 2, FIRST_ROOM = 64 };

static struct tenant *tenant_of(struct mgpu_engine *e, uint64_t id)
{
    struct open_file file;

    return files_by_id(&e->files, id, &file) ? file.tenant : NULL;
}

static bool hold_calls(struct tenant *t, uint32_t wait_ms)
{
    struct timespec until = monotonic_after_ms(wait_ms);

    return pthread_mutex_clocklock(&t->calls, CLOCK_MONOTONIC, &until) == 0;
}

/* False when its tenant is at a call all that time, or has been taken over in this instant: to be tried again. The daemon waits
 * for the last file of a tenant that nobody can call for any more; a program that starts closes files by the dozen. */
static bool end_file(struct mgpu_engine *e, uint64_t id, uint32_t wait_ms)
{
    struct tenant *t = tenant_of(e, id);
    struct open_file file;
    bool taken;

    if (t && !hold_calls(t, wait_ms))
        return false;
    taken = files_take_of(&e->files, id, t, &file);
    if (!taken || !t || mediate_file_gone(&e->mediator, &file))
        eventfd_write(e->events, 1);
    if (t)
        pthread_mutex_unlock(&t->calls);
    return taken || tenant_of(e, id) == t;
}

/* False when there is no room for it. */
static bool put_off(struct file_ends *f, uint64_t id)
{
    uint32_t room = f->room ? 2 * f->room : FIRST_ROOM;
    uint64_t *more;

    if (f->n == f->room) {
        if (!(more = reallocarray(f->id, room, sizeof(*more))))
            return false;
        f->id = more;
        f->room = room;
    }
    f->id[f->n++] = id;
    pthread_cond_signal(&f->more);
    return true;
}

static void end_or_put_off(struct mgpu_engine *e, uint64_t id)
{
    struct file_ends *f = &e->ends;
    bool done;

    pthread_mutex_lock(&f->lock);
    done = (!f->n && end_file(e, id, 0)) || put_off(f, id);
    pthread_mutex_unlock(&f->lock);
    while (!done)
        done = end_file(e, id, TURN_MS);
}

static void *watch(void *arg)
{
    struct mgpu_engine *e = arg;
    int64_t id;

    while ((id = e->mediator.ops->next_gone(e->mediator.driver)) >= 0)
        end_or_put_off(e, (uint64_t)id);
    atomic_store(&e->driver_lost, true);
    eventfd_write(e->events, 1);
    return NULL;
}

/* One turn for each of the tenants whose files are in the list. The list's lock is held, and let go for each: others append. */
static void end_all_in_turn(struct mgpu_engine *e)
{
    struct file_ends *f = &e->ends;
    uint32_t kept = 0, i;

    memset(f->busy, 0, sizeof(f->busy));
    for (i = 0; i < f->n && !f->over; i++) {
        uint64_t id = f->id[i];
        const struct tenant *t = tenant_of(e, id);
        bool *busy = t ? &f->busy[t - e->tenant] : NULL;

        if (!busy || !*busy) {
            pthread_mutex_unlock(&f->lock);
            bool ended = end_file(e, id, TURN_MS);
            pthread_mutex_lock(&f->lock);
            if (ended)
                continue;
            if (busy)
                *busy = true;
        }
        f->id[kept++] = id;
    }
    memmove(f->id + kept, f->id + i, (f->n - i) * sizeof(*f->id));
    f->n -= i - kept;
}

static void *end_late(void *arg)
{
    struct mgpu_engine *e = arg;
    struct file_ends *f = &e->ends;
    LOCKED_(ends_held, &f->lock);

    while (!f->over) {
        if (f->n)
            end_all_in_turn(e);
        else
            pthread_cond_wait(&f->more, &f->lock);
    }
    return NULL;
}

static void stop_late(struct file_ends *f)
{
    pthread_mutex_lock(&f->lock);
    f->over = true;
    pthread_cond_signal(&f->more);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->late, NULL);
    pthread_cond_destroy(&f->more);
    pthread_mutex_destroy(&f->lock);
    free(f->id);
}

int file_ends_start(struct mgpu_engine *e)
{
    struct file_ends *f = &e->ends;
    int error;

    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->more, NULL);
    if ((error = -pthread_create(&f->late, NULL, end_late, e)) < 0) {
        pthread_cond_destroy(&f->more);
        pthread_mutex_destroy(&f->lock);
        return error;
    }
    if ((error = -pthread_create(&f->watch, NULL, watch, e)) < 0)
        stop_late(f);
    return error;
}

void file_ends_stop(struct mgpu_engine *e)
{
    e->mediator.ops->stop_watch(e->mediator.driver);
    pthread_join(e->ends.watch, NULL);
    stop_late(&e->ends);
}

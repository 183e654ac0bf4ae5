/* Which files are gone. Nothing tells: there is no hook at the close of somebody else's file, so every file's weak reference
 * is looked at in turn, some at each tick. */
#define _GNU_SOURCE
#include "../boundary/rm_abi.h"
#include "nvidia_apart.h"
#include "nvidia_hidden.h"
#include "nvidia_private.h"
#include "nvidia_scan.h"
#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { SWEEP_MS = 100, NS_PER_MS = 1000 * 1000 };
/* The weak reference ends when the last close begins, the memory when it is over. How long that takes is for E5 to say. */
static const uint64_t grace_ns = 200ull * NS_PER_MS;

static bool scan_is_due(struct driver *d)
{
    return !d->scanned_at_ns || nvidia_now_ns() - d->scanned_at_ns >= d->scan_gap_ns;
}

/* Once our descriptor is closed it may be where nobody sees it, and be used there: whoever looks at the flags of the tenant's
 * files finds what is noted here. One that is initialised after that is by a call that is under way on it. */
static bool has_been_asked(struct driver *d, uint64_t id)
{
    const struct open_file file = {.id = id};
    int e = nvidia_initialized(d, &file, UVM_INIT_DISABLE_HMM);

    if (e >= 0)
        files_note_flags(d->files.known, id, e ? UVM_FLAGS_RIGHT : UVM_FLAGS_WRONG);
    return e >= 0 || e == -ENODATA;
}

/* With a copy of our descriptors about, no close of ours is the last. */
static void let_go_of_loose(struct driver *d)
{
    uint64_t id;
    int fd;

    if (!nvidia_apart_hold())
        return;
    while ((id = nvidia_files_next_loose(&d->files)) && has_been_asked(d, id) &&
           (fd = nvidia_files_take_loose(&d->files, id)) >= 0)
        nvidia_files_let_go(&d->files, id, last_close(&d->last_close, fd)); /* which takes its time */
    nvidia_apart_release();
}

void nvidia_find_lost(struct driver *d, bool lost)
{
    bool loose = nvidia_files_mark_loose(&d->files);

    if ((!lost && !loose) || !scan_is_due(d))
        return;
    atomic_store(&d->lost, false);
    nvidia_scan(d);
    d->scanned_at_ns = nvidia_now_ns();
    nvidia_files_look_loose(&d->files);
    let_go_of_loose(d);
}

static bool watch_begins(struct driver *d)
{
    bool may;

    pthread_mutex_lock(&d->watch_lock);
    may = !atomic_load(&d->stopping);
    d->watched = may;
    pthread_mutex_unlock(&d->watch_lock);
    return may;
}

static int64_t watch_ends(struct driver *d)
{
    pthread_mutex_lock(&d->watch_lock);
    d->watched = false;
    pthread_cond_signal(&d->watch_left);
    pthread_mutex_unlock(&d->watch_lock);
    return -ECANCELED;
}

int64_t nvidia_next_gone(struct driver *d)
{
    struct pollfd wake = {.fd = d->wake, .events = POLLIN};
    uint64_t id, count;
    bool lost;

    if (!watch_begins(d))
        return -ECANCELED;
    while (!atomic_load(&d->stopping)) {
        if ((id = nvidia_files_take_gone(&d->files, nvidia_now_ns() - grace_ns)))
            return (int64_t)id;
        if (poll(&wake, 1, SWEEP_MS) > 0 && read(d->wake, &count, sizeof(count)) < 0 && errno != EAGAIN)
            break;
        nvidia_files_end_unseen(&d->files, d->host);
        nvidia_hidden_look(d);
        lost = nvidia_files_sweep(&d->files);
        nvidia_find_lost(d, lost || atomic_load(&d->lost));
    }
    return watch_ends(d);
}

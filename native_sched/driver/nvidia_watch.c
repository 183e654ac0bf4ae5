/* Which files are gone. Nothing tells: there is no hook at the close of somebody else's file, so every file's weak reference
 * is looked at in turn, some at each tick. */
#define _GNU_SOURCE
#include "nvidia_private.h"
#include "nvidia_scan.h"
#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { SWEEP_MS = 100, NS_PER_MS = 1000 * 1000 };
/* The weak reference ends when the last close begins, the memory when it is over. How long that takes is for E5 to say. */
static const uint64_t grace_ns = 200ull * NS_PER_MS;
/* A file that is nowhere to be found is looked for again that often. */
static const uint64_t scan_ns = 1000ull * NS_PER_MS;

static void scan_if_due(struct driver *d)
{
    uint64_t now = nvidia_now_ns();

    if (d->scanned_at_ns && now - d->scanned_at_ns < scan_ns)
        return;
    atomic_store(&d->lost, false);
    nvidia_scan(d);
    d->scanned_at_ns = nvidia_now_ns();
}

void nvidia_end_loose(struct driver *d)
{
    uint32_t slot;
    int fd;

    if (!nvidia_files_mark_loose(&d->files))
        return;
    nvidia_scan(d);
    while ((fd = nvidia_files_take_loose(&d->files, &slot)) >= 0) {
        close(fd); /* the last of it, and then it takes its time */
        nvidia_files_loose_closed(&d->files, slot);
    }
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
        lost = nvidia_files_sweep(&d->files);
        if (lost || atomic_load(&d->lost))
            scan_if_due(d);
        nvidia_end_loose(d);
    }
    return watch_ends(d);
}

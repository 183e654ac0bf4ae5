/* Finds closed files. The kernel does not report the close of another process's file, so each tick checks
 * some of the weak references in turn. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/mutex.h"
#include "native_sched/nvidia/driver/nvidia/files/unpollable.h"
#include "native_sched/nvidia/driver/nvidia/host/unshared.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include "private.h"
#include "scan.h"
#include "unlocated.h"
#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { SWEEP_MS = 100, AWAITED_SWEEP_MS = 10 };
/* While a call waits, closed files are looked for sooner, but with no more than this part of a processor: a
 * tenant can have a call wait whenever it likes. */
enum { AWAITED_PART = 20 };

static bool awaited(struct driver *d)
{
    return monotonic_ns() - atomic_load(&d->awaited_at_ns) < AWAITED_MS * NS_PER_MS;
}

static bool is_sooner(struct driver *d)
{
    return d->scans_sooner && awaited(d);
}

/* How long to rest after a round that took so long. */
static int pause_ms(struct driver *d, uint64_t round_ns)
{
    uint64_t pause = round_ns * AWAITED_PART / NS_PER_MS;

    if (!awaited(d) || pause > SWEEP_MS)
        return SWEEP_MS;
    return pause < AWAITED_SWEEP_MS ? AWAITED_SWEEP_MS : (int)pause;
}

static bool usual_gap_is_over(const struct driver *d, uint64_t now)
{
    return !d->scanned_at_ns || now - d->scanned_at_ns >= d->scan_gap_ns;
}

/* While a thread has a copy of our descriptors, no close of ours is the last. */
static void release_unpollable(struct driver *d)
{
    uint64_t id;
    int fd;

    if (!nvidia_unshared_hold())
        return;
    while ((id = unpollable_next_due(&d->files)) && (fd = unpollable_take(&d->files, id)) >= 0)
        unpollable_released(&d->files, id, nvidia_last_close(&d->closes, fd)); /* which may take long */
    nvidia_unshared_release();
}

void nvidia_locate(struct driver *d, bool unlocated)
{
    bool unpollable = unpollable_mark(&d->files), usual = usual_gap_is_over(d, monotonic_ns());

    if ((!unlocated && !unpollable) || (!usual && !is_sooner(d)))
        return;
    atomic_store(&d->unlocated, false);
    nvidia_scan(d);
    if (usual)
        d->scanned_at_ns = monotonic_ns();
    unpollable_scanned(&d->files, usual);
    release_unpollable(d);
}

static bool watch_begins(struct driver *d)
{
    bool may;

    LOCKED(&d->watch_lock);
    may = !atomic_load(&d->stopping);
    d->watched = may;
    return may;
}

static int64_t watch_ends(struct driver *d)
{
    LOCKED(&d->watch_lock);
    d->watched = false;
    pthread_cond_signal(&d->watch_left);
    return -ECANCELED;
}

int64_t nvidia_next_closed(struct driver *d)
{
    struct pollfd wake = {.fd = d->wake, .events = POLLIN};
    uint64_t id, count, began, round_ns = 0;
    bool unlocated;

    if (!watch_begins(d))
        return -ECANCELED;
    while (!atomic_load(&d->stopping)) {
        if ((id = nvidia_files_take_closed(&d->files)))
            return (int64_t)id;
        if (poll(&wake, 1, pause_ms(d, round_ns)) > 0 && read(d->wake, &count, sizeof(count)) < 0 &&
            errno != EAGAIN)
            break;
        began = monotonic_ns();
        unpollable_retire_unlocated(&d->files, d->host);
        nvidia_unlocated_poll(d);
        unlocated = nvidia_files_sweep(&d->files);
        nvidia_locate(d, unlocated || atomic_load(&d->unlocated));
        round_ns = monotonic_ns() - began;
    }
    return watch_ends(d);
}

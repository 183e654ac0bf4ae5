#define _GNU_SOURCE
#include "loop.h"
#include "apply.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "native_sched/process/privileges.h"
#include "poll.h"
#include "proof.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { REALTIME_PRIORITY = 20 };
/* Three scans of all processes, of which the second finds a file that was passed on. RM may also refuse to
 * suspend a group while a context is made or ended, which takes far less. */
enum { PATIENCE_NS = 1500000000 };

static void wait_until(const struct loop *l, uint64_t at_ns)
{
    struct pollfd kick = {.fd = l->kick, .events = POLLIN};
    uint64_t now = loop_now_ns(), count, left = at_ns > now ? at_ns - now : 0;
    struct timespec t = timespec_of(left);

    if (ppoll(&kick, 1, at_ns == UINT64_MAX ? NULL : &t, NULL) > 0 &&
        read(l->kick, &count, sizeof(count)) < 0 && errno != EAGAIN)
        abort();
}

static void become_realtime(struct loop *l)
{
    const struct sched_param priority = {.sched_priority = REALTIME_PRIORITY};

    prctl(PR_SET_TIMERSLACK, 1UL);
    prctl(PR_SET_NAME, "mgpud-sched");
    /* Children of mgpud must not inherit it. */
    atomic_store(&l->realtime, sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority) == 0);
}

static void *run(void *arg)
{
    struct loop *l = arg;
    uint64_t wake_at;

    become_realtime(l);
    drop_thread_privileges();
    while (!atomic_load(&l->stopping)) {
        loop_stats_count(&l->stats.turns);
        pthread_mutex_lock(&l->active);
        loop_poll(l);
        loop_read_samples(l);
        wake_at = loop_apply(l);
        pthread_mutex_unlock(&l->active);
        wait_until(l, wake_at < l->next_poll_ns ? wake_at : l->next_poll_ns);
    }
    return NULL;
}

static const struct mgpu_sched_config defaults = {
    .hold_ns = 100 * 1000 * 1000,
    .poll_fast_ns = 500 * 1000,
    .poll_slow_ns = 1000 * 1000,
    .quiet_ns = 5 * 1000 * 1000,
};

int loop_start(struct loop *l, const struct mediator *m, struct refusals *refusals)
{
    int e;

    l->m = m;
    l->refusals = refusals;
    l->config = defaults;
    l->blind_cards = UINT32_MAX;
    l->patience_ns = PATIENCE_NS;
    for (int i = 0; i < MAX_CARDS; i++)
        l->card[i].next_poll_ns = UINT64_MAX;
    mutex_init_inheriting(&l->active);
    mutex_init_inheriting(&l->lock);
    if ((e = sched_init(&l->core, &sched_default_config, loop_now_ns())) < 0)
        return e;
    if ((e = events_init(&l->events)) < 0)
        return e;
    l->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e = l->kick < 0 ? -errno : -pthread_create(&l->thread, NULL, run, l);
    if (e < 0) {
        if (l->kick >= 0)
            close(l->kick);
        events_destroy(&l->events);
    }
    return e;
}

void loop_stop(struct loop *l)
{
    atomic_store(&l->stopping, true);
    loop_kick(l);
    pthread_join(l->thread, NULL);
    close(l->kick);
    events_destroy(&l->events);
}

/* Processes that have no grant and have a tenant's open file: its calls there reach the driver unseen, and
 * what it makes is in no account. The driver says which processes have something on a card. One that is
 * nobody's, and has a tenant's file by a descriptor, is that tenant's to answer for: its container is ended.
 * What a stranger makes in the tenant's own clients is counted to the tenant's processes (audit_watch()). */
#include "native_sched/boundary/continued/continued.h"
#include "engine_private.h"
#include <time.h>

/* A client may be made or end between the driver's answer and the look at the accounts. */
enum { LOOKS = 4, BETWEEN_MS = 20 };

static bool is_tenants(struct mgpu_engine *e, pid_t pid)
{
    assert_held(&e->lock);
    for (struct tenant *t = e->tenant; t < e->tenant + MAX_TENANTS; t++)
        if (t->id && !t->lost && audit_knows(t, pid))
            return true;
    return pid == getpid();
}

/* Without the lock: the driver's own may be held for long. */
static int ask(struct mgpu_engine *e, uint32_t minor, struct rm_pids *out, uint32_t after_ms)
{
    const struct timespec pause = {.tv_nsec = (long)after_ms * 1000000};
    int error;

    assert_held(&e->lock);
    pthread_mutex_unlock(&e->lock);
    if (after_ms)
        nanosleep(&pause, NULL);
    error = e->mediator.ops->pids(e->mediator.driver, minor, out);
    pthread_mutex_lock(&e->lock);
    return error;
}

static bool lists(const struct rm_pids *pids, pid_t pid)
{
    for (uint32_t i = 0; i < pids->count; i++)
        if (pids->pid[i] == (uint32_t)pid)
            return true;
    return false;
}

/* Whether the driver has it and no account does, however often both are asked. */
static bool is_stranger(struct mgpu_engine *e, uint32_t minor, pid_t pid)
{
    static struct rm_pids again; /* the poller's alone */
    bool is = true;

    for (int look = 0; look < LOOKS && is; look++)
        is = ask(e, minor, &again, BETWEEN_MS) >= 0 && lists(&again, pid) && !is_tenants(e, pid);
    return is;
}

void strangers_look(struct mgpu_engine *e)
{
    static struct rm_pids pids; /* the poller's alone */
    const struct mediator *m = &e->mediator;
    struct open_file file;

    assert_held(&e->lock);
    for (uint32_t i = 0; i < m->cards; i++) {
        if (ask(e, m->card[i].minor, &pids, 0) < 0)
            continue;
        for (uint32_t n = 0; n < pids.count; n++) {
            pid_t pid = (pid_t)pids.pid[n];

            if (!is_tenants(e, pid) && m->ops->known_file(m->driver, pid, &file) && file.tenant->id &&
                is_stranger(e, m->card[i].minor, pid) && file.tenant->id)
                audit_stranger(m, file.tenant, m->card[i].index);
        }
    }
}

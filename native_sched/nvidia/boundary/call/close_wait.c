#include "close_wait.h"
#include "base/clock.h"
#include "native_sched/nvidia/account/files.h"
#include "native_sched/nvidia/account/tenant.h"
#include "native_sched/process/caller.h"
#include <errno.h>

/* Whether the caller waits and files are closing is polled at this interval: the first has no notification.
 */
enum { LOOK_MS = 20, FILES_AT_ONCE = 64 };

/* The driver first: what it has reported since is taken out of the table, and counted there. */
bool close_awaited(const struct mediator *m, const struct tenant *t)
{
    struct open_file file[FILES_AT_ONCE];
    uint32_t at = 0, n;

    while (m->ops->any_closing && (n = files_list(m->files, t, &at, file, FILES_AT_ONCE)))
        if (m->ops->any_closing(m->driver, file, n))
            return true;
    return files_closing(m->files, t);
}

static void wait_for_end(struct tenant *t)
{
    struct timespec until = monotonic_after_ms(LOOK_MS);

    pthread_cond_timedwait(&t->file_closed, &t->calls, &until);
}

int close_wait(struct call *c)
{
    struct tenant *t = c->tenant;
    uint64_t now;

    assert_held(&c->tenant->calls);
    if (!close_awaited(c->m, t)) {
        t->close_wait_since_ms = 0;
        return 0;
    }
    now = monotonic_ns() / 1000000;
    if (!t->close_wait_since_ms)
        t->close_wait_since_ms = now;
    if (!c->waits_since_ms)
        c->waits_since_ms = now;
    /* A tenant can have its files end one after the other for as long as it likes. */
    if (now - t->close_wait_since_ms >= c->m->close_wait_ms || now - c->waits_since_ms >= c->m->close_wait_ms)
        return 0;
    wait_for_end(t);
    return (c->over && atomic_load(c->over)) || !caller_waits(c->caller) ? -EINTR : 1;
}

int close_wait_all(struct call *c)
{
    int e;
    WITH_CALLS_OF(c->tenant);

    while ((e = close_wait(c)) > 0)
        ;
    return e;
}

int close_wait_identify(struct call *c, int fd, struct open_file *out)
{
    const struct mediator *m = c->m;
    int e = m->ops->identify(m->driver, c->caller, c->tenant, fd, out), waited = 1;

    if (e != -EMFILE)
        return e;
    WITH_CALLS_OF(c->tenant);
    while (e == -EMFILE && (waited = close_wait(c)) > 0)
        e = m->ops->identify(m->driver, c->caller, c->tenant, fd, out);
    return waited < 0 ? waited : e;
}

void close_wait_wake(struct tenant *t)
{
    assert_held(&t->calls);
    t->close_wait_since_ms = 0;
    pthread_cond_broadcast(&t->file_closed);
}

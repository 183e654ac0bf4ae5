#include "ending.h"
#include "../base/clock.h"
#include "caller.h"
#include "files.h"
#include "tenant.h"
#include <errno.h>

/* Whether the caller waits and the files are ending is looked at again after so long: nobody tells of the first. */
enum { LOOK_MS = 20, FILES_AT_ONCE = 64 };

/* The driver first: what it has told of since is taken out of the table, and counted there. */
static bool any_ends(const struct mediator *m, const struct tenant *t)
{
    struct open_file file[FILES_AT_ONCE];
    uint32_t at = 0, n;

    while (m->ops->any_ended && (n = files_list(m->files, t, &at, file, FILES_AT_ONCE)))
        if (m->ops->any_ended(m->driver, file, n))
            return true;
    return files_ending(m->files, t);
}

static void wait_for_end(struct tenant *t)
{
    struct timespec until = monotonic_after_ms(LOOK_MS);

    pthread_cond_timedwait(&t->file_ended, &t->calls, &until);
}

int ending_wait(struct call *c)
{
    struct tenant *t = c->tenant;
    uint64_t now;

    if (!any_ends(c->m, t)) {
        t->ending_since_ms = 0;
        return 0;
    }
    now = monotonic_ns() / 1000000;
    if (!t->ending_since_ms)
        t->ending_since_ms = now;
    if (!c->waits_since_ms)
        c->waits_since_ms = now;
    /* A tenant can have its files end one after the other for as long as it likes. */
    if (now - t->ending_since_ms >= c->m->ending_wait_ms || now - c->waits_since_ms >= c->m->ending_wait_ms)
        return 0;
    wait_for_end(t);
    return (c->over && atomic_load(c->over)) || !caller_waits(c->caller) ? -EINTR : 1;
}

int ending_settle(struct call *c)
{
    int e;
    WITH_CALLS_OF(c->tenant);

    while ((e = ending_wait(c)) > 0)
        ;
    return e;
}

int ending_identify(struct call *c, int fd, struct open_file *out)
{
    const struct mediator *m = c->m;
    int e = m->ops->identify(m->driver, c->caller, c->tenant, fd, out), waited = 1;

    if (e != -EMFILE)
        return e;
    WITH_CALLS_OF(c->tenant);
    while (e == -EMFILE && (waited = ending_wait(c)) > 0)
        e = m->ops->identify(m->driver, c->caller, c->tenant, fd, out);
    return waited < 0 ? waited : e;
}

void ending_over(struct tenant *t)
{
    t->ending_since_ms = 0;
    pthread_cond_broadcast(&t->file_ended);
}

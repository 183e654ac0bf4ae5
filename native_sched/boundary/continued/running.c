#include "running.h"
#include <errno.h>
#include <signal.h>

uint32_t mig_open(const struct continued *l, bool ended)
{
    uint32_t n = 0;

    for (const struct subscription *s = l->subscription; s < l->subscription + SUBSCRIPTIONS_MAX; s++)
        n += s->file && (s->ended || !ended);
    return n;
}

uint32_t continued_unconfirmed(const struct tenant *t)
{
    uint32_t n = mig_open(t->continued, true);

    for (uint32_t i = 0; i < t->continued->clients; i++)
        n += t->continued->client[i].doubtful;
    return n;
}

bool continued_any_unconfirmed(const struct tenant *t)
{
    assert_held(&t->calls);
    return continued_unconfirmed(t) || mig_open(t->continued, false);
}

struct answer continued_begin(struct call *c)
{
    struct continued *l = c->tenant->continued;

    assert_held(&c->tenant->calls);
    l->begun = true;
    atomic_store_explicit(&c->tenant->audit_due, true, memory_order_release);
    l->running[l->runs++] = (pid_t)c->caller->req->pid;
    return continued();
}

bool runs_on(const struct continued *l, pid_t thread)
{
    for (uint32_t i = 0; i < l->runs; i++)
        if (l->running[i] == thread)
            return true;
    return false;
}

void forget_finished(struct continued *l, pid_t caller)
{
    for (uint32_t i = 0; i < l->runs;)
        if (l->running[i] == caller || (kill(l->running[i], 0) < 0 && errno == ESRCH))
            l->running[i] = l->running[--l->runs];
        else
            i++;
}

/* Keeps what is charged for managed memory equal to what is mapped. */
#define _GNU_SOURCE
#include "native_sched/process/address_space.h"
#include "private.h"
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

static bool is_granted(const struct mediator *m, const struct tenant *t, uint32_t i)
{
    return t->granted[m->card[i].index];
}

/* On each of its cards, or on none. */
static int charge(const struct mediator *m, struct tenant *t, struct managed_space *s, uint64_t bytes)
{
    WITH_TENANT(t);

    for (uint32_t i = 0; i < m->cards; i++)
        if (is_granted(m, t, i) && bytes > ledger_free_bytes(&t->ledger[m->card[i].index]))
            return -ENOMEM;
    __atomic_store_n(&s->bytes, s->bytes + bytes, __ATOMIC_RELEASE);
    t->managed->bytes += bytes;
    for (uint32_t i = 0; i < m->cards; i++) {
        struct ledger *l = &t->ledger[m->card[i].index];

        if (is_granted(m, t, i))
            ledger_charge(l, bytes);
    }
    return 0;
}

static void release(const struct mediator *m, struct tenant *t, struct managed_space *s, uint64_t bytes)
{
    WITH_TENANT(t);

    for (uint32_t i = 0; i < m->cards; i++)
        if (is_granted(m, t, i))
            ledger_release(&t->ledger[m->card[i].index], bytes);
    t->managed->bytes -= bytes;
    __atomic_store_n(&s->bytes, s->bytes - bytes, __ATOMIC_RELEASE);
}

void managed_violation(const struct mediator *m, struct tenant *t, uint64_t bytes)
{
    for (uint32_t i = 0; i < m->cards; i++)
        if (is_granted(m, t, i))
            stats_audit_mismatch(&t->stats, m->card[i].index);
    atomic_store(&t->unaccounted_bytes, bytes);
    atomic_store(&t->managed->due, true);
    eventfd_write(m->events, 1);
}

/* Charged calls that still run may map that much. */
static uint64_t pending_bytes(const struct managed *g, uint32_t i)
{
    uint64_t bytes = 0;

    for (struct managed_call *k = NULL; (k = managed_next_call(g, i, k));)
        bytes += k->charged ? k->bytes : 0;
    return bytes;
}

static bool must_charge(const struct mediator *m, struct tenant *t, uint32_t i, uint64_t bytes)
{
    if (charge(m, t, &t->managed->page->address_space[i], bytes) == 0)
        return true;
    managed_violation(m, t, bytes);
    return false;
}

/* The process has exited and another one has its memory: every uncharged call counts as having mapped all
 * that it asked for. */
static void assume_the_worst(const struct mediator *m, struct tenant *t, uint32_t i)
{
    for (struct managed_call *k = NULL; (k = managed_next_call(t->managed, i, k));)
        k->charged = k->charged || must_charge(m, t, i, k->bytes);
}

static bool reconcile(const struct mediator *m, struct tenant *t, uint32_t i)
{
    struct managed *g = t->managed;
    struct managed_space *s = &g->page->address_space[i];
    int64_t n = managed_space_mapped(m, g, i, 0, MANAGED_END);
    uint64_t less;

    if (n == -EAGAIN) {
        assume_the_worst(m, t, i);
        return false;
    }
    if (n < 0) {
        less = s->bytes;
        release(m, t, s, less);
        managed_drop_space(g, i);
        return less;
    }
    if ((uint64_t)n > s->bytes) {
        must_charge(m, t, i, (uint64_t)n - s->bytes);
        return false;
    }
    less = s->bytes - (uint64_t)n;
    less -= less < pending_bytes(g, i) ? less : pending_bytes(g, i);
    if (less)
        release(m, t, s, less);
    if (!s->bytes && !managed_next_call(g, i, NULL))
        managed_drop_space(g, i);
    return less;
}

/* True if an uncharged mmap() is still in flight. Finished ones have been reconciled. */
bool managed_finish(const struct mediator *m, struct tenant *t, pid_t caller)
{
    struct managed *g = t->managed;
    bool runs = false;

    assert_held(&t->calls);
    for (uint32_t n = 0; g->page && n < MANAGED_CALLS; n++) {
        struct managed_call *k = &g->page->call[n];
        bool ended = k->tid && (k->tid == caller || thread_returned(k->tid, SYS_mmap));

        if (k->tid && k->address_space && !k->charged &&
            managed_space_mapped(m, g, k->address_space - 1, k->base, k->base + k->bytes) != 0)
            reconcile(m, t, k->address_space - 1);
        if (ended)
            k->tid = 0;
        runs |= k->tid && k->address_space && !k->charged;
    }
    return runs;
}

bool managed_reconcile_space(const struct mediator *m, struct tenant *t)
{
    struct managed *g = t->managed;
    bool any = false, less = false;

    assert_held(&t->calls);
    managed_finish(m, t, 0);
    for (uint32_t i = 0; g->page && i < MANAGED_SPACES; i++)
        if (g->page->address_space[i].check) {
            less |= reconcile(m, t, i);
            any |= g->page->address_space[i].check;
        }
    atomic_store(&g->watched, any);
    return less;
}

int managed_reconcile(struct call *c)
{
    struct tenant *t = c->tenant;
    struct managed *g = t->managed;
    pid_t caller = (pid_t)c->caller->req->pid;
    bool due;
    WITH_CALLS_OF(t);

    if (atomic_load(&t->unaccounted_bytes))
        return -EPERM;
    due = managed_finish(c->m, t, caller);
    if (atomic_load(&t->unaccounted_bytes))
        return -EPERM;
    atomic_store_explicit(&g->due, due, memory_order_release);
    return 0;
}

void managed_poll(const struct mediator *m, struct tenant *t)
{
    if (!t->managed || !atomic_load(&t->managed->watched) || pthread_mutex_trylock(&t->calls))
        return; /* the thread that holds them reconciles */
    managed_reconcile_space(m, t);
    pthread_mutex_unlock(&t->calls);
}

int managed_charge(const struct mediator *m, struct tenant *t, int address_space, uint64_t bytes)
{
    struct managed_space *s = &t->managed->page->address_space[address_space];

    if (charge(m, t, s, bytes) == 0)
        return 0;
    managed_reconcile_space(m, t);
    return s->check ? charge(m, t, s, bytes) : -ENOMEM;
}

uint64_t managed_held(const struct tenant *t)
{
    return t->managed ? t->managed->bytes : 0;
}

#define _GNU_SOURCE
#include "managed.h"
#include "native_sched/boundary/call/close_wait.h"
#include "private.h"
#include "native_sched/process/address_space.h"
#include <errno.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { PAGE_BYTES = 4096 };
/* No address is higher, on any x86-64. */
static const uint64_t addresses_end = 1ull << 56;

uint32_t managed_space_check(const struct managed_space *s)
{
    return store_check((const uint8_t *)s + sizeof(s->check),
                       offsetof(struct managed_space, bytes) - sizeof(s->check));
}

int managed_reach(struct managed *g)
{
    int e = g->page ? 0 : store_reach(&g->store, sizeof(*g->page));

    if (!e)
        g->page = (struct managed_page *)(void *)g->store.at;
    return e;
}

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

void managed_close_handle(struct managed_handle *h)
{
    if (h->map >= 0)
        close(h->map);
    if (h->memory >= 0)
        close(h->memory);
    *h = (struct managed_handle){-1, -1};
}

void managed_drop_space(struct managed *g, uint32_t i)
{
    for (struct managed_call *k = g->page->call; k < g->page->call + MANAGED_CALLS; k++)
        if (k->tid && k->address_space == i + 1)
            k->tid = 0;
    __atomic_store_n(&g->page->address_space[i].check, 0, __ATOMIC_RELEASE);
    managed_close_handle(&g->handle[i]);
}

/* What is mapped there. -ENXIO: no process has that memory; -EAGAIN: one has, and it cannot be read now. */
static int64_t mapped(const struct mediator *m, const struct managed *g, uint32_t i, uint64_t from,
                      uint64_t to)
{
    const struct managed_handle *h = &g->handle[i];
    int64_t n = m->ops->managed(m->driver, h->map, g->page->address_space[i].tid, from, to);

    if (n >= 0)
        return n;
    return address_space_lives(h->memory) ? -EAGAIN : -ENXIO;
}

/* What runs and is charged may map that much yet. */
static uint64_t pending_bytes(const struct managed *g, uint32_t i)
{
    uint64_t bytes = 0;

    for (const struct managed_call *k = g->page->call; k < g->page->call + MANAGED_CALLS; k++)
        if (k->tid && k->address_space == i + 1 && k->charged)
            bytes += k->bytes;
    return bytes;
}

static bool has_calls(const struct managed *g, uint32_t i)
{
    for (const struct managed_call *k = g->page->call; k < g->page->call + MANAGED_CALLS; k++)
        if (k->tid && k->address_space == i + 1)
            return true;
    return false;
}

static bool must_charge(const struct mediator *m, struct tenant *t, uint32_t i, uint64_t bytes)
{
    if (charge(m, t, &t->managed->page->address_space[i], bytes) == 0)
        return true;
    managed_violation(m, t, bytes);
    return false;
}

/* Its process has gone, and another one has its memory: what may have come of calls that were not charged
 * has. */
static void assume_the_worst(const struct mediator *m, struct tenant *t, uint32_t i)
{
    struct managed *g = t->managed;

    for (struct managed_call *k = g->page->call; k < g->page->call + MANAGED_CALLS; k++)
        if (k->tid && k->address_space == i + 1 && !k->charged)
            k->charged = must_charge(m, t, i, k->bytes);
}

static bool look_at(const struct mediator *m, struct tenant *t, uint32_t i)
{
    struct managed *g = t->managed;
    struct managed_space *s = &g->page->address_space[i];
    int64_t n = mapped(m, g, i, 0, addresses_end);
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
    if (!s->bytes && !has_calls(g, i))
        managed_drop_space(g, i);
    return less;
}

bool managed_reconcile_space(const struct mediator *m, struct tenant *t)
{
    struct managed *g = t->managed;
    bool any = false, less = false;

    assert_held(&t->calls);
    managed_finish(m, t, 0);
    for (uint32_t i = 0; g->page && i < MANAGED_SPACES; i++)
        if (g->page->address_space[i].check) {
            less |= look_at(m, t, i);
            any |= g->page->address_space[i].check;
        }
    atomic_store(&g->watched, any);
    return less;
}

/* Whether one runs on that was not charged. Those that have ended were looked at after that. */
bool managed_finish(const struct mediator *m, struct tenant *t, pid_t caller)
{
    struct managed *g = t->managed;
    bool runs = false;

    assert_held(&t->calls);
    for (uint32_t n = 0; g->page && n < MANAGED_CALLS; n++) {
        struct managed_call *k = &g->page->call[n];
        bool ended = k->tid && (k->tid == caller || thread_returned(k->tid, SYS_mmap));

        if (k->tid && k->address_space && !k->charged &&
            mapped(m, g, k->address_space - 1, k->base, k->base + k->bytes) != 0)
            look_at(m, t, k->address_space - 1);
        if (ended)
            k->tid = 0;
        runs |= k->tid && k->address_space && !k->charged;
    }
    return runs;
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

/* That of the process, or of one that has the thread's memory, that was found last. -ENOSPC: none. */
static int last_space(const struct managed *g, pid_t tid, pid_t tgid)
{
    int found = -ENOSPC;

    for (int i = 0; i < MANAGED_SPACES; i++) {
        const struct managed_space *s = &g->page->address_space[i];

        if (s->check && s->who.tgid == tgid &&
            (found < 0 || s->number > g->page->address_space[found].number))
            found = i;
    }
    for (int i = 0; found < 0 && i < MANAGED_SPACES; i++)
        if (g->page->address_space[i].check && g->page->address_space[i].who.tgid != tgid &&
            address_space_same(tid, g->page->address_space[i].tid))
            found = last_space(g, g->page->address_space[i].tid, g->page->address_space[i].who.tgid);
    return found;
}

/* A thread whose call there may not have ended has the same memory as this one. */
static bool shares_a_call(const struct managed *g, uint32_t i, pid_t tid)
{
    for (const struct managed_call *k = g->page->call; k < g->page->call + MANAGED_CALLS; k++)
        if (k->tid && k->tid != tid && k->address_space == i + 1 && address_space_same(tid, k->tid))
            return true;
    return false;
}

/* Whether a space is the memory that has just been opened of the thread: exec() gives a process another one,
 * and the old one may live on. What has something mapped was found when that was mapped, so that the last one
 * found is the one, if as much is mapped there. 1, 0; -EAGAIN: what is mapped changes all the time. */
static int same_address_space(const struct mediator *m, struct managed *g, uint32_t i, pid_t tid,
                              struct managed_handle *now)
{
    enum { LOOKS = 8 };

    for (int k = 0; k < LOOKS; k++) {
        int64_t first = mapped(m, g, i, 0, addresses_end);
        int64_t here = m->ops->managed(m->driver, now->map, tid, 0, addresses_end);

        if (first < 0 || here < 0)
            return 0;
        if (first == here) {
            if (here || shares_a_call(g, i, tid))
                return 1;
            /* Nothing is lost with the other one, if it is another. */
            managed_close_handle(&g->handle[i]);
            g->handle[i] = *now;
            *now = (struct managed_handle){-1, -1};
            return 1;
        }
        if (first == mapped(m, g, i, 0, addresses_end))
            return 0;
    }
    return -EAGAIN;
}

static int add_space(struct managed *g, pid_t tid, const struct process_id *who, struct managed_handle *now)
{
    int i = 0;

    while (i < MANAGED_SPACES && g->page->address_space[i].check)
        i++;
    if (i == MANAGED_SPACES)
        return -ENOSPC;
    g->handle[i] = *now;
    *now = (struct managed_handle){-1, -1};
    g->page->address_space[i] = (struct managed_space){
        .tid = tid, .number = ++g->page->last_number, .who = *who};
    __atomic_store_n(&g->page->address_space[i].check, managed_space_check(&g->page->address_space[i]),
                     __ATOMIC_RELEASE);
    return i;
}

/* The thread's, which may be one of those already. -ENOSPC, -ESRCH, -EAGAIN. */
static int address_space_of(const struct mediator *m, struct managed *g, pid_t tid,
                            const struct process_id *who)
{
    struct managed_handle now = {-1, -1};
    int i = last_space(g, tid, who->tgid), e;
    pid_t of = who->tgid;

    /* A process's first thread can have ended before the others. */
    if (address_space_open(of, &now.map, &now.memory) < 0 &&
        (e = address_space_open(of = tid, &now.map, &now.memory)) < 0)
        return e;
    e = i < 0 ? 0 : same_address_space(m, g, (uint32_t)i, of, &now);
    i = e < 0 ? e : e ? i : add_space(g, of, who, &now);
    managed_close_handle(&now);
    return i;
}

int managed_space_of(struct call *c)
{
    struct process_id who;
    int e = caller_process_id(c->caller, &who);

    assert_held(&c->tenant->calls);
    return e < 0 ? e : address_space_of(c->m, c->tenant->managed, (pid_t)c->caller->req->pid, &who);
}

int managed_begin(struct call *c)
{
    struct managed *g = c->tenant->managed;
    pid_t caller = (pid_t)c->caller->req->pid;
    int i = -ENOSPC;

    assert_held(&c->tenant->calls);
    g->page->begun = true;
    for (struct managed_call *k = g->page->call; k < g->page->call + MANAGED_CALLS; k++) {
        if (!k->tid || k->address_space || !address_space_same(k->tid, caller))
            continue;
        if (i < 0 && (i = managed_space_of(c)) < 0)
            return i;
        k->address_space = (uint32_t)i + 1;
    }
    return 0;
}

static struct managed_call *free_call(struct managed *g, pid_t tid)
{
    struct managed_call *found = NULL;

    for (struct managed_call *k = g->page->call; k < g->page->call + MANAGED_CALLS; k++)
        if (k->tid == tid)
            return k;
        else if (!k->tid)
            found = k;
    return found;
}

/* Memory of nvidia-uvm has not been asked for yet. */
static int note(const struct mediator *m, struct tenant *t, pid_t tid, uint64_t base, uint64_t bytes)
{
    struct managed *g = t->managed;
    struct managed_call *k = free_call(g, tid);

    if (!k) {
        managed_finish(m, t, tid);
        k = free_call(g, tid);
    }
    if (!k)
        return -EAGAIN;
    *k = (struct managed_call){.tid = tid, .base = base, .bytes = bytes};
    return 0;
}

/* Not for reading, at another address than its offset, or at none. The kernel maps at address 0 only what
 * asks for it. */
static bool cannot_be_managed(const struct seccomp_data *d)
{
    const uint64_t length = d->args[1], protection = d->args[2], flags = d->args[3], offset = d->args[5];
    bool fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);

    return !(protection & PROT_READ) || (fixed ? d->args[0] != offset : !offset) || offset % PAGE_BYTES ||
           offset >= addresses_end || !length || length >= addresses_end;
}

static int charge_or_look(const struct mediator *m, struct tenant *t, int address_space, uint64_t bytes)
{
    struct managed_space *s = &t->managed->page->address_space[address_space];

    if (charge(m, t, s, bytes) == 0)
        return 0;
    managed_reconcile_space(m, t);
    return s->check ? charge(m, t, s, bytes) : -ENOMEM;
}

static int may_run(struct call *c, uint64_t base, uint64_t bytes, bool charged)
{
    struct tenant *t = c->tenant;
    struct managed *g = t->managed;
    pid_t tid = (pid_t)c->caller->req->pid;
    struct managed_call *k = free_call(g, tid);
    int i = k ? managed_space_of(c) : -ENOSPC;

    if (i == -ENOSPC) {
        managed_reconcile_space(c->m, t);
        i = (k = free_call(g, tid)) ? managed_space_of(c) : -ENOSPC;
    }
    if (i < 0)
        return i == -ENOSPC ? -EAGAIN : i;
    /* Before the charge, as one that is to map nothing: a look keeps what a call needs, and gives back the
     * rest. */
    *k = (struct managed_call){.address_space = (uint32_t)i + 1, .charged = charged, .base = base};
    __atomic_store_n(&k->tid, tid, __ATOMIC_RELEASE);
    if (charged && charge_or_look(c->m, t, i, bytes) < 0) {
        k->tid = 0;
        atomic_store(&g->watched, true);
        return -ENOMEM;
    }
    k->bytes = bytes;
    atomic_store(&g->watched, true);
    if (!charged)
        atomic_store_explicit(&g->due, true, memory_order_release);
    return 0;
}

/* of_uvm: the descriptor is one of a file of nvidia-uvm. */
static int map_managed(struct call *c, const struct seccomp_data *d, bool of_uvm)
{
    struct tenant *t = c->tenant;
    struct managed *g = t->managed;
    pid_t tid = (pid_t)c->caller->req->pid;
    const uint64_t base = d->args[5], bytes = (d->args[1] + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;

    assert_held(&c->tenant->calls);
    if (!caller_waits(c->caller))
        return -EINTR;
    if (managed_reach(g) < 0)
        return g->begun ? -EAGAIN : 0;
    if (!g->page->begun)
        return note(c->m, t, tid, base, bytes);
    managed_finish(c->m, t, tid);
    if (atomic_load(&t->unaccounted_bytes))
        return -EPERM;
    return may_run(c, base, bytes, of_uvm);
}

struct answer managed_mmap(struct call *c, const struct seccomp_data *d)
{
    struct tenant *t = c->tenant;
    int e = -ENOTTY, waited = 1;
    bool of_uvm;

    if (atomic_load(&t->unaccounted_bytes))
        return failed(-EPERM);
    if (!c->m->ops->managed || cannot_be_managed(d))
        return continued();
    if (atomic_load(&t->managed->begun))
        e = close_wait_identify(c, (int)d->args[4], &c->file);
    if (e < 0 && e != -ENOTTY && e != -EBADF)
        return failed(e);
    of_uvm = e == 0 && c->file.kind == NODE_UVM;
    WITH_CALLS_OF(t);
    do
        e = map_managed(c, d, of_uvm);
    while (e == -ENOMEM && (waited = close_wait(c)) > 0);
    e = waited < 0 ? waited : e;
    return e < 0 ? failed(e) : continued();
}

uint64_t managed_held(const struct tenant *t)
{
    return t->managed ? t->managed->bytes : 0;
}

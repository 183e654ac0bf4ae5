/* Keeps the calls that may map managed memory: mmap(), from its notification on. */
#define _GNU_SOURCE
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/process/address_space.h"
#include "private.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { PAGE_BYTES = 4096 };

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

/* A managed range is readable and lies at the address that is its offset. That is never 0 unless the caller
 * fixed it: the kernel maps there only if asked to. */
static bool cannot_be_managed(const struct seccomp_data *d)
{
    const uint64_t length = d->args[1], protection = d->args[2], flags = d->args[3], offset = d->args[5];
    bool fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);

    return !(protection & PROT_READ) || (fixed ? d->args[0] != offset : !offset) || offset % PAGE_BYTES ||
           offset >= MANAGED_END || !length || length >= MANAGED_END;
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
    if (charged && managed_charge(c->m, t, i, bytes) < 0) {
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

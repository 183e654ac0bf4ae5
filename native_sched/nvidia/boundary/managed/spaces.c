/* Keeps the address spaces, each known by descriptors of its map and memory. */
#define _GNU_SOURCE
#include "native_sched/process/address_space.h"
#include "private.h"
#include <errno.h>
#include <stddef.h>
#include <unistd.h>

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
    for (struct managed_call *k = NULL; (k = managed_next_call(g, i, k));)
        k->tid = 0;
    __atomic_store_n(&g->page->address_space[i].check, 0, __ATOMIC_RELEASE);
    managed_close_handle(&g->handle[i]);
}

int64_t managed_space_mapped(const struct mediator *m, const struct managed *g, uint32_t i, uint64_t from,
                             uint64_t to)
{
    const struct managed_handle *h = &g->handle[i];
    int64_t n = m->ops->managed(m->driver, h->map, g->page->address_space[i].tid, from, to);

    if (n >= 0)
        return n;
    return address_space_lives(h->memory) ? -EAGAIN : -ENXIO;
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
    for (struct managed_call *k = NULL; (k = managed_next_call(g, i, k));)
        if (k->tid != tid && address_space_same(tid, k->tid))
            return true;
    return false;
}

enum { OTHER, SAME, BOTH_EMPTY };

/* Compares a recorded space with the one just opened of the thread: exec() gives a process another one, and
 * the old one may live on. A space with mappings was recorded when it made them, so the latest record with as
 * much mapped is this one. -EAGAIN: the mappings change all the time. */
static int same_address_space(const struct mediator *m, const struct managed *g, uint32_t i, pid_t tid,
                              const struct managed_handle *now)
{
    enum { LOOKS = 8 };

    for (int k = 0; k < LOOKS; k++) {
        int64_t first = managed_space_mapped(m, g, i, 0, MANAGED_END);
        int64_t here = m->ops->managed(m->driver, now->map, tid, 0, MANAGED_END);

        if (first < 0 || here < 0)
            return OTHER;
        if (first == here)
            return here || shares_a_call(g, i, tid) ? SAME : BOTH_EMPTY;
        if (first == managed_space_mapped(m, g, i, 0, MANAGED_END))
            return OTHER;
    }
    return -EAGAIN;
}

static void give_handle(struct managed *g, uint32_t i, struct managed_handle *now)
{
    managed_close_handle(&g->handle[i]);
    g->handle[i] = *now;
    *now = (struct managed_handle){-1, -1};
}

static int add_space(struct managed *g, pid_t tid, const struct process_id *who, struct managed_handle *now)
{
    int i = 0;

    while (i < MANAGED_SPACES && g->page->address_space[i].check)
        i++;
    if (i == MANAGED_SPACES)
        return -ENOSPC;
    give_handle(g, (uint32_t)i, now);
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
    e = i < 0 ? OTHER : same_address_space(m, g, (uint32_t)i, of, &now);
    /* Nothing is lost with the other one, if it is another. */
    if (e == BOTH_EMPTY)
        give_handle(g, (uint32_t)i, &now);
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

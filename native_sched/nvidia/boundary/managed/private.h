/* What the files of managed.h share. */
#ifndef MGPU_MANAGED_PRIVATE_H
#define MGPU_MANAGED_PRIVATE_H
#include "managed.h"

/* No address is higher, on any x86-64. */
#define MANAGED_END (1ull << 56)

/* Covers all members that do not change by themselves. */
uint32_t managed_space_check(const struct managed_space *s);
void managed_drop_space(struct managed *g, uint32_t i);
void managed_close_handle(struct managed_handle *h);
/* Room in the journal. -ENOSPC. */
int managed_reach(struct managed *g);
/* The caller is about to initialise a file of nvidia-uvm: calls that already run in its address space count
 * from now on. In another one they map nothing of that file (uvm_mmap()). -ENOSPC, -ESRCH, -EAGAIN. */
int managed_begin(struct call *c);
/* The address space of the caller. -ENOSPC, -ESRCH. */
int managed_space_of(struct call *c);
/* Calls that have ended are forgotten, after a look at what came of them. True: one runs that was not
 * charged. */
bool managed_finish(const struct mediator *m, struct tenant *t, pid_t caller);
/* The next call there, after k; NULL: before the first, and after the last. */
static inline struct managed_call *managed_next_call(const struct managed *g, uint32_t i,
                                                     struct managed_call *k)
{
    for (k = k ? k + 1 : g->page->call; k < g->page->call + MANAGED_CALLS; k++)
        if (k->tid && k->address_space == i + 1)
            return k;
    return NULL;
}

/* What is mapped there. -ENXIO: no process has that memory; -EAGAIN: one has, and it cannot be read now. */
int64_t managed_space_mapped(const struct mediator *m, const struct managed *g, uint32_t i, uint64_t from,
                             uint64_t to);
/* On each of its cards, after a look where that is too much. -ENOMEM: on none. */
int managed_charge(const struct mediator *m, struct tenant *t, int address_space, uint64_t bytes);
/* It holds so much that it was not charged for. */
void managed_violation(const struct mediator *m, struct tenant *t, uint64_t bytes);
#endif

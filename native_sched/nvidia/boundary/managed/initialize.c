/* How files of nvidia-uvm are initialised. Without UVM_INIT_FLAGS_DISABLE_HMM a card's faults bring in any
 * memory of the process, and it is no range that could be charged: on whole cards it takes nobody's room.
 * With UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE managed pages outlive the process that mapped them
 * (uvm_destroy_vma_managed() of NVIDIA's open-gpu-kernel-modules): the server of MPS asks for it, and on
 * whole cards they are its container's.
 *
 * INITIALIZE runs in its caller, since it is about the calling process. The flag is put where the kernel will
 * read it, and another thread can take it away, or put another file in the place of the one that we have
 * seen. So the file is asked when it is to get an address space (gpu_vaspace.c), without which nothing of it
 * is on a card: neither a fault nor MIGRATE brings anything there (uvm_api_migrate()). A second INITIALIZE
 * compares the flags and does nothing else (uvm_api_initialize()), which is safe once the file says that it
 * is initialised: it never is otherwise again. */
#define _GNU_SOURCE
#include "private.h"
#include <errno.h>

/* What it has brought in is not known: all of a card, at the most. */
static void inflight(const struct mediator *m, struct tenant *t)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < m->cards; i++)
        if (t->granted[m->card[i].index] && m->card[i].memory_bytes > bytes)
            bytes = m->card[i].memory_bytes;
    managed_violation(m, t, bytes ? bytes : 1);
}

int managed_initialized(const struct mediator *m, struct tenant *t, const struct open_file *file)
{
    static const uint64_t of_whole_cards[] = {0, UVM_INIT_MULTI_PROCESS,
                                              UVM_INIT_MULTI_PROCESS | UVM_INIT_DISABLE_HMM};
    int e = m->ops->initialized ? m->ops->initialized(m->driver, file, UVM_INIT_DISABLE_HMM) : 1;

    for (size_t i = 0; i < sizeof(of_whole_cards) / sizeof(*of_whole_cards) && e == 0 && t->whole; i++)
        e = m->ops->initialized(m->driver, file, of_whole_cards[i]);
    assert_held(&t->calls);
    if (e == 0)
        inflight(m, t);
    return e < 0 ? e : e ? 0 : -EPERM;
}

/* 0, a negative errno or rm_refusal(). */
static int continue_with(struct call *c, uint64_t flags)
{
    struct managed *g = c->tenant->managed;
    int e;

    if (flags & UVM_INIT_MULTI_PROCESS && !c->tenant->whole)
        return rm_refusal(NV_ERR_NOT_SUPPORTED);
    if (managed_reach(g) < 0 || managed_begin(c) < 0)
        return rm_refusal(NV_ERR_NO_MEMORY);
    atomic_store(&g->begun, true);
    if (!c->tenant->whole)
        flags |= UVM_INIT_DISABLE_HMM;
    if ((e = caller_write_both(c->caller, c->outer_at, &flags, sizeof(flags), 0, NULL, 0)) < 0)
        return e;
    atomic_store_explicit(&g->due, true, memory_order_release);
    atomic_store(&g->watched, true);
    return 0;
}

struct answer managed_initialize(struct call *c)
{
    struct uvm_initialize *request = (void *)c->params;
    int e;
    WITH_CALLS_OF(c->tenant);

    c->params_at = c->outer_at;
    c->params_bytes = sizeof(*request);
    if ((e = caller_read(c->caller, c->params_at, c->params, c->params_bytes)) < 0)
        return failed(e);
    if (!caller_waits(c->caller))
        return failed(-EINTR);
    if ((e = continue_with(c, request->flags)) == 0)
        return continued();
    if (!(request->status = rm_refused(e)))
        return failed(e);
    c->params_out = true;
    return answered(request->status);
}

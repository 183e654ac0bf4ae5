/* How files of nvidia-uvm are initialised. Without UVM_INIT_FLAGS_DISABLE_HMM a card's faults bring in any memory of the process,
 * and it is no range that could be charged. With UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE managed pages outlive the process that
 * mapped them (uvm_destroy_vma_managed() of NVIDIA's open-gpu-kernel-modules).
 *
 * INITIALIZE runs in its caller, since it is about the calling process. The flag is put where the kernel will read it, and
 * another thread can take it away; so the file is asked afterwards. A second INITIALIZE compares the flags and does nothing
 * else (uvm_api_initialize()), which is safe once the file says that it is initialised: it never is otherwise again.
 *
 * A card's faults come to a file by the channels that are registered on it, and these want an address space that is: only a file
 * that has said how it was initialised gets one (gpu_vaspace.c), wherever it is and whoever sees it after that. The others are
 * asked for their ranges' sake, each before our descriptor of it is closed too (nvidia_watch.c), and what it has said is kept with it. */
#define _GNU_SOURCE
#include "managed_private.h"
#include "registered.h"
#include <errno.h>

static int noted(const struct mediator *m, uint64_t file)
{
    struct open_file now;

    return files_by_id(m->files, file, &now) ? now.flags : -EBADF;
}

/* What it says, or has said: an enum uvm_flags, or as the driver's initialized(). */
static int flags_of(const struct mediator *m, uint64_t id)
{
    const struct open_file file = {.id = id};
    int flags = noted(m, id), e;

    if (flags != UVM_FLAGS_UNKNOWN)
        return flags;
    e = m->ops->initialized(m->driver, &file, UVM_INIT_DISABLE_HMM);
    /* It may have been let go meanwhile, and was asked before. */
    if (e == -EAGAIN && (flags = noted(m, id)) != UVM_FLAGS_UNKNOWN)
        return flags;
    if (e < 0)
        return e;
    flags = e ? UVM_FLAGS_RIGHT : UVM_FLAGS_WRONG;
    files_note_flags(m->files, id, (enum uvm_flags)flags);
    return flags;
}

/* What it has brought in nobody can say: all of a card, at the most. */
static void caught(const struct mediator *m, struct tenant *t)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < m->cards; i++)
        if (t->granted[m->card[i].index] && m->card[i].memory_bytes > bytes)
            bytes = m->card[i].memory_bytes;
    managed_caught(m, t, bytes ? bytes : 1);
}

int managed_initialized(const struct mediator *m, struct tenant *t, uint64_t file)
{
    int flags = m->ops->initialized ? flags_of(m, file) : UVM_FLAGS_RIGHT;

    if (flags == UVM_FLAGS_WRONG)
        caught(m, t);
    return flags < 0 ? flags : flags == UVM_FLAGS_RIGHT ? 0 : -EPERM;
}

bool managed_check(const struct mediator *m, struct tenant *t, uint64_t file)
{
    int e = managed_initialized(m, t, file);
    bool done = e == 0 || e == -EPERM || e == -ENODATA || e == -EBADF || e == -EAGAIN;

    if (!done)
        atomic_store_explicit(&t->managed->due, true, memory_order_release);
    return done;
}

bool managed_check_files(const struct mediator *m, struct tenant *t)
{
    struct open_file file[MANAGED_FILES];
    uint32_t files = files_of_kind(m->files, t, NODE_UVM, file, MANAGED_FILES);
    bool all = true;

    for (uint32_t i = 0; i < files; i++)
        all &= managed_check(m, t, file[i].id);
    return !all || (t->registered->begun && initialize_runs(&t->registered->page->initialize));
}

int managed_check_file(struct call *c)
{
    WITH_CALLS_OF(c->tenant);

    managed_check(c->m, c->tenant, c->file.id);
    return atomic_load(&c->tenant->unaccounted_bytes) ? -EPERM : 0;
}

int managed_initializes(struct call *c, uint64_t flags)
{
    struct managed *g = c->tenant->managed;
    int e;

    if (flags & UVM_INIT_MULTI_PROCESS)
        return NV_ERR_NOT_SUPPORTED;
    if (managed_reach(g) < 0)
        return NV_ERR_NO_MEMORY;
    if (managed_begin(c) < 0)
        return NV_ERR_NO_MEMORY;
    atomic_store(&g->begun, true);
    flags |= UVM_INIT_DISABLE_HMM;
    if ((e = caller_write_both(c->caller, c->outer_at, &flags, sizeof(flags), 0, NULL, 0)) < 0)
        return e;
    atomic_store_explicit(&g->due, true, memory_order_release);
    atomic_store(&g->watched, true);
    return NV_OK;
}

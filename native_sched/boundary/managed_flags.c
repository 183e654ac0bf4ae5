/* How files of nvidia-uvm are initialised. Without UVM_INIT_FLAGS_DISABLE_HMM a card's faults bring in any memory of the process,
 * and it is no range that could be charged. With UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE managed pages outlive the process that
 * mapped them (uvm_destroy_vma_managed() of NVIDIA's open-gpu-kernel-modules).
 *
 * INITIALIZE runs in its caller, since it is about the calling process. The flag is put where the kernel will read it, and
 * another thread can take it away; so the file is asked afterwards. A second INITIALIZE compares the flags and does nothing
 * else (uvm_api_initialize()), which is safe once the file says that it is initialised: it never is otherwise again. */
#define _GNU_SOURCE
#include "managed_private.h"
#include "registered.h"
#include <errno.h>

static bool is_checked(const struct managed *g, uint64_t file)
{
    for (uint32_t i = 0; i < MANAGED_FILES; i++)
        if (g->checked[i] == file)
            return true;
    return false;
}

void managed_check(const struct mediator *m, struct tenant *t, const struct open_file *file)
{
    struct managed *g = t->managed;
    uint64_t bytes = 0;
    int e;

    if (!m->ops->initialized || is_checked(g, file->id))
        return;
    e = m->ops->initialized(m->driver, file, UVM_INIT_DISABLE_HMM);
    if (e > 0) {
        g->checked[g->checks++ % MANAGED_FILES] = file->id;
    } else if (e == 0) {
        /* What it has brought in nobody can say: all of a card, at the most. */
        for (uint32_t i = 0; i < m->cards; i++)
            if (t->granted[m->card[i].index] && m->card[i].memory_bytes > bytes)
                bytes = m->card[i].memory_bytes;
        managed_caught(m, t, bytes ? bytes : 1);
    }
}

bool managed_check_files(const struct mediator *m, struct tenant *t)
{
    struct open_file file[MANAGED_FILES];
    uint32_t files = files_of_kind(m->files, t, NODE_UVM, file, MANAGED_FILES);

    for (uint32_t i = 0; i < files; i++)
        managed_check(m, t, &file[i]);
    return t->registered->begun && initialize_runs(&t->registered->page->initialize);
}

int managed_check_file(struct call *c)
{
    WITH_CALLS_OF(c->tenant);

    managed_check(c->m, c->tenant, &c->file);
    return atomic_load(&c->tenant->unaccounted_bytes) ? -EPERM : 0;
}

int managed_initializes(struct call *c, uint64_t flags)
{
    struct managed *g = c->tenant->managed;
    int e;

    if (flags & UVM_INIT_MULTI_PROCESS)
        return RM_ERR_NOT_SUPPORTED;
    if (managed_reach(g) < 0)
        return RM_ERR_NO_MEMORY;
    if (managed_begin(c) < 0)
        return RM_ERR_NO_MEMORY;
    atomic_store(&g->begun, true);
    flags |= UVM_INIT_DISABLE_HMM;
    if ((e = caller_write_both(c->caller, c->outer_at, &flags, sizeof(flags), 0, NULL, 0)) < 0)
        return e;
    atomic_store_explicit(&g->due, true, memory_order_release);
    return RM_OK;
}

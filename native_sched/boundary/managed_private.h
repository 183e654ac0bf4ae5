/* What the files of managed.h share. The tenant's calls are held for all of it. */
#ifndef MGPU_MANAGED_PRIVATE_H
#define MGPU_MANAGED_PRIVATE_H
#include "managed.h"

/* Of all of it that does not change by itself. */
uint32_t managed_space_check(const struct managed_space *s);
void managed_drop_space(struct managed *g, uint32_t i);
void managed_close_handle(struct managed_handle *h);
/* Room in the journal. -ENOSPC. */
int managed_reach(struct managed *g);
/* The caller is about to initialise a file of nvidia-uvm: what runs in its memory already counts from now on. In another one it
 * maps nothing of that file (uvm_mmap()). -ENOSPC, -ESRCH, -EAGAIN. */
int managed_begin(struct call *c);
/* The address space of the caller. -ENOSPC, -ESRCH. */
int managed_space_of(struct call *c);
/* Calls that have ended are forgotten, after a look at what came of them. True: one runs that was not charged. */
bool managed_finish(const struct mediator *m, struct tenant *t, pid_t caller);
/* It holds so much that it was not charged for. */
void managed_caught(const struct mediator *m, struct tenant *t, uint64_t bytes);

/* Whether the file was initialised as we have it done; a tenant whose file was not has been caught. False: it cannot be asked
 * at this moment, and is before the tenant's next call. */
bool managed_check(const struct mediator *m, struct tenant *t, uint64_t file);
/* All of its files. True: that is to be done again, since one may be about to be initialised, or could not be asked. */
bool managed_check_files(const struct mediator *m, struct tenant *t);
#endif

/* MIG: objects that stand for the GPU instance and the compute instance that a client works on. The driver
 * takes a capability's descriptor for each, which it duplicates in the process that calls, so that they are
 * let through (continued.h). Asked for are the two of the card that was granted, and no others.
 *
 * What another thread makes of such a call after our look is the driver's to refuse, by the capability, or is
 * what continued.h says of a flipped class. Whether it made what was asked for is asked of the driver
 * before the tenant's next call is served: only then is it in the books. At most CONTINUED_UNCONFIRMED_MAX
 * calls of a tenant may have ended without. */
#ifndef MGPU_MIG_H
#define MGPU_MIG_H
#include "native_sched/boundary/objects/handles.h"

/* As continued_commit(). */
struct answer mig_subscribe(struct call *c, struct creation *a);

/* Takes into the books what has been made since. */
int mig_poll(struct call *c);

/* The file is gone. */
void mig_forget(struct continued *l, uint64_t file);
#endif

/* MIG: objects that stand for the GPU instance and the compute instance that a client works on. The driver
 * takes a capability's descriptor for each, which it duplicates in the process that calls, so that the calls
 * are continued (continued.h). Only the two instances of the granted card may be asked for.
 *
 * Another thread can change such a call after it was judged: the driver refuses another instance by its
 * capability, and continued.h says what becomes of another class. Before the tenant's next call is served,
 * the driver is asked whether the object was made: only then is it in the account. At most
 * CONTINUED_UNCONFIRMED_MAX calls of a tenant may have ended without one. */
#ifndef MGPU_MIG_H
#define MGPU_MIG_H
#include "native_sched/boundary/objects/handles.h"

/* As continued_commit(). */
struct answer mig_subscribe(struct call *c, struct creation *a);

/* Takes into the account what has been made since. */
int mig_poll(struct call *c);

/* The file is closed. */
void mig_forget(struct continued *l, uint64_t file);
#endif

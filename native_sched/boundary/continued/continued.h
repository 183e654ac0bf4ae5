/* Calls that only the caller itself can make, as the driver's table says, and whose arguments another thread
 * of the caller can change between our look and the driver's. They are let through, and before the tenant's
 * next answer the driver's own account of its processes is compared with ours: a tenant that holds more than
 * it was charged for gets no answer any more, and its container is killed.
 *
 * What the driver does not count to processes is a channel group, which a flipped class may be. One that is
 * not in the books never runs: it is scheduled by a control alone, no control is let through, and those that
 * are executed take no group or channel that was not booked. Nor does it pile up: on a file that may have a
 * client already, from which it would have to hang, only CONTINUED_UNCONFIRMED_MAX calls of a tenant may be
 * such that no new client has been seen of them.
 *
 * What such a call made is not read from the caller's memory. A root client is taken into the books when it
 * is first named and the driver confirms it on that very file. */
#ifndef MGPU_CONTINUED_H
#define MGPU_CONTINUED_H
#include "native_sched/boundary/call/call.h"

/* The call made by its caller. */
struct answer continued_commit(struct call *c);

/* The same for one that has the driver pin the caller's pages. -EPERM: this driver does not take it, or too
 * many run. */
struct answer continued_pin_pages(struct call *c);
/* Where no kernel would take a call up that is let through: what the driver makes of it. */
struct answer continued_as_caller(struct call *c);

/* Before a call of a tenant is served or answered. -EPERM: it has been caught. */
int audit(struct call *c);

static inline bool audit_passed(const struct tenant *t)
{
    return !atomic_load_explicit(&t->audit_due, memory_order_acquire);
}

/* What the previous mgpud left. */
void continued_recover(struct continued *l);

/* Takes the root client that the call names into the books, if one that was let through is missing there. */
int continued_adopt_client(struct call *c, uint32_t client);
/* Root clients that were let through on it are none any more. */
void continued_forget(struct tenant *t, uint64_t file);
#endif

/* Calls that only the caller itself can make, as the driver's table says, and whose arguments another thread of the caller
 * can change between our look and the driver's. They are let through, and before the tenant's next answer the driver's
 * own account of its processes is compared with ours: a tenant that holds more than it was charged for gets no answer any
 * more, and its container is killed.
 *
 * What the driver does not count to processes is a channel group, which a flipped class may be. One that is not in the books
 * never runs: it is scheduled by a control alone, no control is let through, and those that are executed take no group
 * or channel that was not booked. Nor does it pile up: on a file that may have a client already, from which it would have
 * to hang, only LET_THROUGH_DOUBTFUL calls of a tenant may be such that no new client has been seen of them.
 *
 * What such a call made is not read from the caller's memory. A root client is taken into the books when it is first
 * named and the driver confirms it on that very file. */
#ifndef MGPU_LET_THROUGH_H
#define MGPU_LET_THROUGH_H
#include "mediate.h"

/* The call made by its caller: as call_driver(). -EINPROGRESS: answer with CONTINUE. The tenant's calls are held. */
int let_through(struct call *c, uint32_t *status);

/* The same for one that has the driver pin the caller's pages. -EPERM: this driver does not take it, or too many run. */
/* Where no kernel would take a call up that is let through: what the driver makes of it. */
int made_as_caller(struct call *c);
int let_pages_through(struct call *c);

/* Answered with CONTINUE: it runs from then until the thread calls again, or is no more. Room for it has been seen to. */
int runs_in_its_caller(struct call *c);

/* How many calls have been let through on files that may have a client, and turned out to have made nothing that we know.
 * The tenant is held. */
uint32_t let_through_doubtful(const struct tenant *t);
/* There are such calls, or some that may become such. The tenant's calls are held. */
bool in_doubt(const struct tenant *t);
/* ... on that file: what they made may hang from a client of it. */
bool let_through_in_doubt(const struct tenant *t, uint64_t file);

/* Before a call of a tenant is served or answered. -EPERM: it has been caught. */
int settle(struct call *c);

static inline bool settled(const struct tenant *t)
{
    return !atomic_load_explicit(&t->audit_due, memory_order_acquire);
}

/* What an earlier worker left. */
void let_through_recover(struct let_through *l);

/* Takes the root client that the call names into the books, if one that was let through is missing there. */
int adopt_client(struct call *c, uint32_t client);
#endif

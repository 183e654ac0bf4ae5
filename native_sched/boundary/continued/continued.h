/* Calls that only the caller itself can make, as the driver's table says, and whose arguments another thread
 * can change after they were judged. They are continued, and before the tenant's next answer the driver's
 * count of its processes is compared with the account: a tenant that holds more than it was charged for gets
 * no answer, and its container is killed.
 *
 * The driver does not count a channel group to processes, and a call whose class was changed may make one. A
 * group that is not in the account never runs: only a control schedules it, no control is continued, and
 * mediated ones take only groups and channels of the account. Nor do such groups pile up: a group needs a
 * client, and on a file that may have one, a tenant has at most CONTINUED_UNCONFIRMED_MAX calls after which
 * no new client was seen.
 *
 * What such a call made is not read from the caller's memory. A root client is taken into the account when it
 * is first named and the driver confirms it on that very file. */
#ifndef MGPU_CONTINUED_H
#define MGPU_CONTINUED_H
#include "native_sched/boundary/call/call.h"

/* Continues the call. */
struct answer continued_commit(struct call *c);

/* The same for one that has the driver pin the caller's pages. -EPERM: this driver does not take it, or too
 * many run. */
struct answer continued_pin_pages(struct call *c);
/* Where there is no kernel that could continue a call: what the driver makes of it. */
struct answer continued_as_caller(struct call *c);

/* Before a call of a tenant is served or answered. -EPERM: it is in violation. */
int audit(struct call *c);

static inline bool audit_passed(const struct tenant *t)
{
    return !atomic_load_explicit(&t->audit_due, memory_order_acquire);
}

/* Takes over what the previous mgpud left. */
void continued_recover(struct continued *l);

/* Takes the root client that the call names into the account, if a continued call made it. */
int continued_adopt_client(struct call *c, uint32_t client);
/* Forgets root clients that continued calls made on the file. */
void continued_forget(struct tenant *t, uint64_t file);
#endif

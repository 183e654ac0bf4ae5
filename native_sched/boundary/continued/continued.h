/* Calls that only the caller itself can make, as the driver's table says, and whose arguments another thread
 * can change after they were judged: root clients, of which RM notes the calling process, and subscriptions
 * to MIG instances. The file behind their descriptor can be changed too.
 *
 * Each makes one object, whose name the arbiter gives it. While the driver does not have that object on the
 * file that was judged, the call is unconfirmed: it may have made another one instead. A tenant has at most
 * UNCONFIRMED_MAX such calls. Before each of its answers the driver is asked for the object, and while one is
 * missing the driver's count of the tenant's memory is compared with the account: who has more is killed. So
 * is who has let a call be unconfirmed for UNCONFIRMED_S, since what it made may be in no count (page tables,
 * a channel group's contexts). The same is done each second for tenants that make no call.
 *
 * A confirmed call has made that object and nothing else. */
#ifndef MGPU_CONTINUED_H
#define MGPU_CONTINUED_H
#include "native_sched/boundary/objects/handles.h"

/* Returns when there is room for one more, or after a second; the tenant's calls are not held. */
void continued_wait_for_room(struct call *c);
/* Continues the call. The object has its name by then, unless it is a client, which is given one here. */
struct answer continued_make(struct call *c, struct creation *a);
/* The call was not continued after all: its caller had been interrupted. */
void continued_not_sent(struct call *c);
/* Where there is no kernel that could continue a call: what the driver makes of it. */
struct answer continued_as_caller(struct call *c);

/* Before a call of a tenant is served or answered. -EPERM: it is in violation. */
int audit(const struct mediator *m, struct tenant *t);
/* The same each second, whether or not the tenant calls, for those that have a client. The clients of one in
 * violation are ended: other processes may keep its files open for as long as they like. */
void audit_watch(const struct mediator *m, struct tenant *t);

/* Whether the driver may count something of the tenant's to the process. */
bool audit_knows(struct tenant *t, pid_t pid);
/* A process of no tenant's has something on the card by a file of this one's: it is in violation. */
void audit_stranger(const struct mediator *m, struct tenant *t, uint32_t card);

static inline bool audit_passed(const struct tenant *t)
{
    return !atomic_load_explicit(&t->audit_due, memory_order_acquire);
}

/* Forgets calls on the file, which is closed. */
void continued_forget(struct tenant *t, uint64_t file);
#endif

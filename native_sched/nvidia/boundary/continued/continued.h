/* Calls that only the caller itself can make, as the driver's table says, and whose arguments another thread
 * can change after they were judged: root clients, of which RM notes the calling process, and subscriptions
 * to MIG instances. The file behind their descriptor can be changed too.
 *
 * Each makes one object, whose name the arbiter gives it. While the driver does not have that object on the
 * file that was judged, the call is unconfirmed: it may have made another one instead. A tenant has one such
 * call at a time, and none of its calls is answered meanwhile. The file is kept open, so that the driver can
 * be asked for the object whatever becomes of the caller.
 *
 * A tenant is in violation, and its container is killed, when the call is over and has not made the object:
 * its thread has left it, or UNCONFIRMED_S have passed. A tenant that makes no call is audited each second.
 *
 * A confirmed call has made that object and nothing else. */
#ifndef MGPU_CONTINUED_H
#define MGPU_CONTINUED_H
#include "native_sched/nvidia/boundary/objects/handles.h"

/* Continues the call. The object has its name by then, unless it is a client, which is given one here. */
struct answer continued_make(struct call *c, struct creation *a);
/* Before its answer is sent, and after which the call may go on. */
void continued_send(struct call *c);
/* After it: looks for what the call has made, for a moment. Where it was not accepted the call was not
 * continued after all: its caller had been interrupted. */
void continued_sent(struct call *c, bool accepted);
/* Where there is no kernel that could continue a call: what the driver makes of it. */
struct answer continued_as_caller(struct call *c);
/* A call that the previous mgpud has left unconfirmed. Its file is known again. */
void continued_recover(const struct mediator *m, struct tenant *t);

/* Before a call of a tenant is served or answered. -EPERM: it is in violation. -EINTR: the caller waits no
 * longer. */
int audit(struct call *c);
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
#endif

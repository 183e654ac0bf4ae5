/* Calls that are let through, from CONTINUE until they have ended, and how many of them have made nothing
 * that we know. */
#ifndef MGPU_RUNNING_H
#define MGPU_RUNNING_H
#include "native_sched/boundary/call/call.h"

/* CONTINUE: it runs from then until the thread calls again, or is no more. Room for it has been
 * seen to. */
struct answer continued_begin(struct call *c);

/* How many calls have been let through on files that may have a client, and turned out to have made nothing
 * that we know. */
uint32_t continued_unconfirmed(const struct tenant *t);
/* There are such calls, or some that may become such. */
bool continued_any_unconfirmed(const struct tenant *t);
/* The thread's may not have ended. */
bool runs_on(const struct continued *l, pid_t thread);
/* Those whose thread calls again, or is no more. */
void forget_finished(struct continued *l, pid_t caller);

/* Subscriptions not found yet; ended: only of calls that have ended. */
uint32_t mig_open(const struct continued *l, bool ended);
#endif

/* Continued calls, from CONTINUE until they have ended, and how many of them are unconfirmed. */
#ifndef MGPU_RUNNING_H
#define MGPU_RUNNING_H
#include "native_sched/boundary/call/call.h"

/* CONTINUE: the call runs until its thread calls again or exits. There is room for it. */
struct answer continued_begin(struct call *c);

/* How many calls were continued on files that may have a client, and have made nothing that is known. */
uint32_t continued_unconfirmed(const struct tenant *t);
/* There are such calls, or calls that may become such. */
bool continued_any_unconfirmed(const struct tenant *t);
/* The thread's call may not have ended. */
bool runs_on(const struct continued *l, pid_t thread);
/* Forgets calls whose thread calls again or has exited. */
void forget_finished(struct continued *l, pid_t caller);

/* How many subscriptions are not found yet; ended: only of calls that have ended. */
uint32_t mig_open(const struct continued *l, bool ended);
#endif

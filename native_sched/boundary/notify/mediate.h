/* What becomes of one notified ioctl: decode, account, execute, rewrite the view. */
#ifndef MGPU_MEDIATE_H
#define MGPU_MEDIATE_H
#include "native_sched/boundary/call/call.h"

/* Serves call->caller's notification, whose outer struct has been read. ANSWER: the RM status is in it. */
struct answer mediate(struct call *c);

/* The outer struct's size for a notified command, or -ENOTTY. */
int mediate_outer_bytes(const struct mediator *m, uint32_t cmd);
/* The command is harmless on any file: it is continued, whatever its file is or becomes by a race. */
bool mediate_passes(const struct mediator *m, uint32_t cmd);

/* What a call is to the replay of calls that were interrupted. Changing: done twice it would be
 * another call. */
bool call_changes(const struct call *c);

#endif

/* What becomes of one notified ioctl: account, execute, rewrite the view. */
#ifndef MGPU_MEDIATE_H
#define MGPU_MEDIATE_H
#include "native_sched/nvidia/boundary/call/call.h"

/* Serves call->caller's notification, whose outer struct has been read. ANSWER: the RM status is in it. */
struct answer mediate(struct call *c);
#endif

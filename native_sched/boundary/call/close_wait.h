/* What a file of the driver held is free when close() has returned, and until the arbiter has seen that end
 * it is still charged. A program that asks for memory meanwhile, or how much is free, waits for the end as it
 * would wait for the driver. */
#ifndef MGPU_CLOSE_WAIT_H
#define MGPU_CLOSE_WAIT_H
#include "call.h"

enum { ENDING_WAIT_MS = 2000 };

/* While a file of the tenant's ends, for the mediator's close_wait_ms at most, from the last one that
 * has and in all of the call. 1: charges may have ended, ask again. 0: none is ending, or it takes too
 * long. -EINTR: the caller waits no more, or the arbiter ends. Lets the tenant's calls
 * go meanwhile. */
int close_wait(struct call *c);
/* Until none is. 0, -EINTR. */
int close_wait_all(struct call *c);
/* identify() of the driver for a descriptor of the caller's. Too many open files are so only when those are
 * over that end. */
int close_wait_identify(struct call *c, int fd, struct open_file *out);
/* One of them has ended, with its charges. */
void close_wait_wake(struct tenant *t);
#endif

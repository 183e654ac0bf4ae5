/* What a file of the driver held is free when close() has returned, and until the arbiter has seen that end it is still charged.
 * A program that asks for memory meanwhile, or how much is free, waits for the end as it would wait for the driver. */
#ifndef MGPU_ENDING_H
#define MGPU_ENDING_H
#include "mediate.h"

enum { ENDING_WAIT_MS = 2000 };

/* While a file of the tenant's ends, for the mediator's ending_wait_ms at most, from the last one that has and in all of the call. 1: charges may have ended, ask
 * again. 0: none is ending, or it takes too long. -EINTR: the caller waits no more, or the arbiter ends. The tenant's calls are
 * held, and let go meanwhile. */
int ending_wait(struct call *c);
/* Until none is. 0, -EINTR. The tenant's calls are not held. */
int ending_settle(struct call *c);
/* identify() of the driver for a descriptor of the caller's. Too many open files are so only when those are over that end. The
 * tenant's calls are not held. */
int ending_identify(struct call *c, int fd, struct open_file *out);
/* One of them has ended, with its charges. The tenant's calls are held. */
void ending_over(struct tenant *t);
#endif

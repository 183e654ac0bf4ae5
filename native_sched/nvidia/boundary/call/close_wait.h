/* The memory of a driver's file is free when close() returns, but stays charged until the arbiter has seen
 * the close. A program that meanwhile asks for memory, or for what is free, waits as for the driver. */
#ifndef MGPU_CLOSE_WAIT_H
#define MGPU_CLOSE_WAIT_H
#include "call.h"

enum { CLOSE_WAIT_MS = 2000 };

/* Waits while a file of the tenant's is closing, for the mediator's close_wait_ms at most since the last one
 * closed, and in all of the call. 1: charges may have ended, ask again. 0: none is closing, or it takes too
 * long. -EINTR: the caller no longer waits, or the arbiter ends. Drops the tenant's calls meanwhile. */
int close_wait(struct call *c);
/* Until none is closing. 0, -EINTR. */
int close_wait_all(struct call *c);
/* identify() of the driver for a descriptor of the caller's. Closing files do not count as too many open
 * ones. */
int close_wait_identify(struct call *c, int fd, struct open_file *out);
/* Whether some are being closed. The driver looks for them sooner from now on, for a while. */
bool close_awaited(const struct mediator *m, const struct tenant *t);
/* One of them is closed, and its charges have ended. */
void close_wait_wake(struct tenant *t);
#endif

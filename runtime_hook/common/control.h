#ifndef MGPU_CONTROL_H
#define MGPU_CONTROL_H
#include "report.h"
#include <stddef.h>
#include <sys/types.h>

/* Bound of one request and of one reply on mgpud's control socket. */
#define CONTROL_MAX_BYTES (128 * 1024)

/* Sends one request to mgpud and reads its reply into reply[CONTROL_MAX_BYTES]. Each step waits timeout_s at
 * most. A mgpud that is being started again is waited for, and asked once more if it was killed before it
 * answered. Returns the reply's length, or a negative errno with why filled. */
ssize_t control_call(const char *path, const char *request, size_t bytes, char *reply, unsigned int timeout_s,
                     struct error *why);
#endif

#ifndef MGPU_STATE_H
#define MGPU_STATE_H
#include "runtime_hook/common/json.h"
#include "runtime_hook/common/report.h"

/* Reads the OCI state that a runtime writes to a hook's stdin, into text[capacity], to its end. It must be a
 * JSON object. 0 with *state set, or a negative errno with why filled. */
int state_read(int fd, char *text, size_t capacity, unsigned int timeout_s, struct slice *state,
               struct error *why);
#endif

/* What a worker says: a header alone, or, when it gives back to a new holder what it had of the one before, a listener
 * with its text. */
#ifndef MGPU_HOLDER_GIVE_BACK_H
#define MGPU_HOLDER_GIVE_BACK_H
#include "protocol.h"
#include <stdbool.h>
#include <stddef.h>

struct said {
    struct holder_head head;
    const char *text;
    size_t text_bytes;
    int fd; /* -1: none */
};

/* -EAGAIN: nothing there; -ECONNRESET: closed; -EBADMSG: no message of a worker's. */
int said_read(int fd, struct said *out);
/* Keeps the listener under the id it had; false when that cannot be. One that is held already is the worker's too. */
bool said_keep(struct said *s);
void said_done(struct said *s);
#endif

/* Messages of mgpud: a header alone, or, while it gives back to a new holder the listeners of the previous
 * one, a listener with its text. */
#ifndef MGPU_HOLDER_GIVE_BACK_H
#define MGPU_HOLDER_GIVE_BACK_H
#include "protocol.h"
#include <stdbool.h>
#include <stddef.h>

struct mgpud_message {
    struct holder_head head;
    const char *text;
    size_t text_bytes;
    int fd; /* -1: none */
};

/* -EAGAIN: none has arrived; -ECONNRESET: closed; -EBADMSG: not a message of mgpud's. */
int give_back_read(int fd, struct mgpud_message *out);
/* Keeps the listener under its id; false if that is impossible. A listener held already is kept too. */
bool give_back_keep(struct mgpud_message *s);
void give_back_done(struct mgpud_message *s);
#endif

/* A thread's connection to the simulated card. */
#ifndef MGPU_SIM_LINE_H
#define MGPU_SIM_LINE_H
#include "private.h"
#include "sim/abi/protocol.h"
#include <stddef.h>
#include <string.h>

/* Each mediating thread has its own connection and buffers, closed when the thread ends. */
struct line {
    int fd;
    bool realtime;
    int16_t nice; /* negative: it may rise meanwhile, since mgpud hurries only while containers wait for it */
    struct sim_request request;
    struct sim_reply reply;
};

/* NULL: no memory. */
struct line *sim_line(void);
/* A new connection, or a negative errno. */
int sim_dial(const struct driver *d);
/* The next question, zeroed, but for the long payload: old bytes of it are not sent. */
static inline void sim_begin(struct line *l, enum sim_op op)
{
    memset(&l->request, 0, offsetof(struct sim_request, payload));
    l->request.op = op;
}
/* One question, of l->request and so many bytes of payload, and its answer in l->reply. Never asked twice:
 * the card may have acted before a connection broke. 0 or the card's errno, negative; -EIO: it is gone. got:
 * where a descriptor that comes with the answer goes, -1: none did; NULL: none can. */
int sim_ask(const struct driver *d, struct line *l, size_t payload, int *got);
#endif

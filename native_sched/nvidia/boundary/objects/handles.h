/* Names of objects that a call makes. */
#ifndef MGPU_HANDLES_H
#define MGPU_HANDLES_H
#include "native_sched/nvidia/boundary/call/call.h"

struct creation {
    uint32_t root, parent, handle, class_id;
    bool wraps; /* a channel group that its one channel brings with it */
};

/* A name that is free, where the caller gives none: what is asked of the driver under a name that we know can
 * be undone. NV_OK, or that it is taken. */
uint32_t choose_handle(struct tenant *t, uint32_t client, uint32_t *handle);

/* One that the next mgpud chooses again for the nth object of the same call, where it is free. */
uint32_t same_handle_again(const struct call *c, uint32_t nth);
/* The same for a client: in RM's own range, from the end that it comes to last. */
uint32_t same_client_again(const struct call *c, uint32_t nth);
/* Whether a client's name is one that mgpud gives: a caller's struct has it already where its call comes
 * again. */
bool is_own_client(uint32_t client);
#endif

/* Control files of the previous mgpud that no process had when they were adopted, though the driver still has
 * their client: they are in a message, or mapped. Their charges stay, and nothing can be called on them,
 * until one comes up again or its client is freed. */
#ifndef MGPU_NVIDIA_UNLOCATED_H
#define MGPU_NVIDIA_UNLOCATED_H
#include "private.h"

/* The file behind our descriptor, fetched from `at`, may be one of the tenant's (NULL: of any). */
void nvidia_unlocated_found(struct driver *d, const struct tenant *t, int ours, struct fd_place at);
/* Asks the driver about the clients of some of them, in turn. */
void nvidia_unlocated_poll(struct driver *d);
/* The tenant has exited: its unlocated control files are closed. */
void nvidia_unlocated_exited(struct driver *d, const struct tenant *t);
#endif

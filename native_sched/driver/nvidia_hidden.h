/* Control files that an earlier worker knew, that no process had when it was taken over, and whose client the driver has all the
 * same: they are in a message, or mapped. What is charged for them stays, and nothing can be called on them, until one comes up
 * again or its client is no more. */
#ifndef MGPU_NVIDIA_HIDDEN_H
#define MGPU_NVIDIA_HIDDEN_H
#include "nvidia_private.h"

/* What is behind our descriptor, fetched from `at`, may be one of the tenant's (NULL: of anybody's). */
void nvidia_hidden_show(struct driver *d, const struct tenant *t, int ours, struct fd_place at);
/* Asks the driver about some of them, in turn. */
void nvidia_hidden_look(struct driver *d);
/* Those of the tenant have ended with it. */
void nvidia_hidden_end(struct driver *d, const struct tenant *t);
#endif

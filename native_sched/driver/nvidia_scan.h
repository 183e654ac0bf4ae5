/* Finding descriptors of files whose known ones are gone: a child that inherited one, a process it was sent to. */
#ifndef MGPU_NVIDIA_SCAN_H
#define MGPU_NVIDIA_SCAN_H
#include "nvidia_private.h"

/* Looks at every descriptor of every process but ours, and notes those that are known files. Milliseconds,
 * so not for a thread that others wait for. A file in a message under way, or one that only a mapping keeps,
 * is not found. */
void nvidia_scan(struct driver *d);

/* The same for whoever asks: `found` is called for each such descriptor until it says true. False: it never did. */
typedef bool (*scan_fn)(void *context, struct fd_place at);
bool nvidia_scan_each(struct driver *d, scan_fn found, void *context);
#endif

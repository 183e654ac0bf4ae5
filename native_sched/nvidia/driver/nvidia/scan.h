/* Finds descriptors of files whose known places are gone: a child that inherited one, a process it was sent
 * to. */
#ifndef MGPU_NVIDIA_SCAN_H
#define MGPU_NVIDIA_SCAN_H
#include "private.h"

/* Checks every descriptor of every process but ours, and notes those of known files. Takes milliseconds, so
 * not for a thread that others wait for. A file that is only in a message or a mapping is not found. */
void nvidia_scan(struct driver *d);

/* driver_ops.known_file */
bool nvidia_known_file(struct driver *d, pid_t pid, int dir, const char *fd, struct open_file *out);

/* The same for any purpose: `found` is called for each such descriptor until it returns true. False: it never
 * did. */
typedef bool (*scan_fn)(void *context, struct fd_place at);
bool nvidia_scan_each(struct driver *d, scan_fn found, void *context);
#endif

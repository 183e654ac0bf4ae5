/* The kind of a file, without asking a file server: a tenant's own may never answer. */
#ifndef MGPU_NVIDIA_STAT_H
#define MGPU_NVIDIA_STAT_H
#include <sys/stat.h>

/* Fills in only what classify() reads. An empty name: the file behind the descriptor itself. 0 or a negative
 * errno. */
int nvidia_stat(int dir, const char *name, struct stat *out);
#endif

/* The part of a process's memory that is mapped from nvidia-uvm. */
#ifndef MGPU_MANAGED_MAP_H
#define MGPU_MANAGED_MAP_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct driver;

struct managed_files {
    struct driver *driver;
    /* Whether the file of that name is one of nvidia-uvm, or cannot be inspected. No file server is asked: a
     * tenant's own may never answer. */
    bool (*has)(struct driver *driver, const char *path);
};

/* As driver_ops.managed(). */
int64_t managed_mapped(const struct managed_files *files, int map, pid_t tid, uint64_t from, uint64_t to);
#endif

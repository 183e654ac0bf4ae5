/* What of a process's memory is mapped by nvidia-uvm, and how a file of it was initialised. */
#define _GNU_SOURCE
#include "native_sched/nvidia/driver/managed_map.h"
#include "native_sched/nvidia/driver/nvidia/host/stat.h"
#include "native_sched/nvidia/driver/nvidia/host/uvm.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include "private.h"
#include <fcntl.h>
#include <unistd.h>

static bool is_uvm(struct driver *d, const char *path)
{
    struct nvidia_node node;
    struct stat st;

    if (nvidia_stat(AT_FDCWD, path, &st) < 0)
        return true;
    return d->host->classify(&st, d->uvm_major, &node) == 0 && node.kind == NODE_UVM;
}

int64_t nvidia_managed(struct driver *d, int map, pid_t tid, uint64_t from, uint64_t to)
{
    return managed_mapped(&(const struct managed_files){d, is_uvm}, map, tid, from, to);
}

int nvidia_initialized(struct driver *d, const struct open_file *file, uint64_t flags)
{
    int fd = nvidia_files_fetch(&d->files, file->id), e;

    if (fd < 0)
        return fd;
    e = nvidia_uvm_initialized_as(d->host, fd, flags);
    close(fd);
    nvidia_files_put(&d->files, file->id);
    return e;
}

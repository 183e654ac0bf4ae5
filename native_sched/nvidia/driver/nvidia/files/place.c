#define _GNU_SOURCE
#include "place.h"
#include "base/scoped.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

int fd_place_fetch(const struct fd_place *at)
{
    scoped_fd int pidfd = (int)syscall(SYS_pidfd_open, at->tid, PIDFD_THREAD);
    scoped_fd int leader = -1;
    int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, at->fd, 0);

    if (fd >= 0)
        return fd;
    /* The thread has exited, or the kernel is older than 6.9 and names only leaders. */
    leader = (int)syscall(SYS_pidfd_open, at->tgid, 0);
    if (leader < 0)
        return -errno;
    fd = (int)syscall(SYS_pidfd_getfd, leader, at->fd, 0);
    return fd < 0 ? -errno : fd;
}

#define _GNU_SOURCE
#include "file_mark.h"
#include <errno.h>
#include <linux/kcmp.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

int file_mark_compare(const struct file_mark *m, pid_t tid, int fd)
{
    struct kcmp_epoll_slot slot = {.efd = (uint32_t)m->epoll, .tfd = (uint32_t)m->watched};
    long order = syscall(SYS_kcmp, tid, m->self, KCMP_EPOLL_TFD, (unsigned long)fd, &slot);

    return order < 0 ? -errno : (int)order;
}

int file_mark_set(struct file_mark *m, int fd)
{
    struct epoll_event nothing = {.events = 0};
    int e;

    /* An instance of its own: in one with several, names that were used before could mean an older file. */
    *m = (struct file_mark){.epoll = epoll_create1(EPOLL_CLOEXEC), .watched = fd, .self = getpid()};
    if (m->epoll < 0)
        return -errno;
    e = epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &nothing) < 0 ? -errno : file_mark_compare(m, m->self, fd);
    if (e)
        file_mark_clear(m);
    return e > 0 ? -EIO : e;
}

void file_mark_clear(struct file_mark *m)
{
    if (m->epoll >= 0)
        close(m->epoll);
    m->epoll = -1;
}

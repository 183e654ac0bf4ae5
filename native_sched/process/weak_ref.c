#define _GNU_SOURCE
#include "weak_ref.h"
#include <errno.h>
#include <linux/kcmp.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

int weak_ref_compare_in(const struct weak_ref *w, pid_t tid, int fd)
{
    const struct kcmp_epoll_slot slot = {.efd = (uint32_t)w->epoll, .tfd = (uint32_t)w->number};
    int order = (int)syscall(SYS_kcmp, tid, w->self, KCMP_EPOLL_TFD, (unsigned long)fd, &slot);

    return order < 0 ? -errno : order;
}

int weak_ref_compare(const struct weak_ref *w, int fd)
{
    return weak_ref_compare_in(w, w->self, fd);
}

int weak_ref_take(int fd, struct weak_ref *out)
{
    struct epoll_event none = {.events = 0};
    int e;

    /* An instance of its own: in one with several, names that were used before could mean an older file. */
    *out = (struct weak_ref){.epoll = epoll_create1(EPOLL_CLOEXEC), .number = fd, .self = getpid()};
    if (out->epoll < 0)
        return -errno;
    e = epoll_ctl(out->epoll, EPOLL_CTL_ADD, fd, &none) < 0 ? -errno : weak_ref_compare(out, fd);
    if (e)
        weak_ref_drop(out);
    return e > 0 ? -EIO : e;
}

void weak_ref_drop(struct weak_ref *w)
{
    if (w->epoll >= 0)
        close(w->epoll);
    w->epoll = -1;
}

bool weak_ref_lives(const struct weak_ref *w)
{
    return weak_ref_compare(w, w->epoll) != -ENOENT;
}

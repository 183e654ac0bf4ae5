#define _GNU_SOURCE
#include "nvidia_weak_file.h"
#include <errno.h>
#include <linux/kcmp.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

int weak_file_take(int fd, struct weak_file *out)
{
    struct epoll_event none = {.events = 0};
    int epoll = epoll_create1(EPOLL_CLOEXEC), e;

    *out = (struct weak_file){.epoll = -1};
    if (epoll < 0)
        return -errno;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &none) < 0) {
        e = -errno;
        close(epoll);
        return e;
    }
    *out = (struct weak_file){.epoll = epoll, .number = fd};
    return 0;
}

void weak_file_drop(struct weak_file *w)
{
    if (w->epoll >= 0)
        close(w->epoll);
    w->epoll = -1;
}

int weak_file_compare(const struct weak_file *w, int fd)
{
    const struct kcmp_epoll_slot slot = {.efd = (uint32_t)w->epoll, .tfd = (uint32_t)w->number};
    pid_t self = getpid();
    int order = (int)syscall(SYS_kcmp, self, self, KCMP_EPOLL_TFD, (unsigned long)fd, &slot);

    return order < 0 ? -errno : order;
}

bool weak_file_lives(const struct weak_file *w)
{
    return weak_file_compare(w, w->epoll) != -ENOENT;
}

#define _GNU_SOURCE
#include "last_close.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The group that receives the events of the file's node from now on; -1: none can. */
static int listen_to(const struct nvidia_last_close *l, int fd)
{
    for (int i = 0; i < LAST_CLOSE_GROUPS; i++)
        if (l->group[i] >= 0 && fanotify_mark(l->group[i], FAN_MARK_ADD, FAN_CLOSE, fd, NULL) == 0)
            return l->group[i];
    return -1;
}

/* Leaves nothing to read. */
static bool heard_of(int group, pid_t thread)
{
    uint8_t events[4096];
    struct fanotify_event_metadata e; /* lies at any address: names of files have any length */
    bool heard = false;
    ssize_t n;

    while ((n = read(group, events, sizeof(events))) > 0)
        for (ssize_t at = 0; at + (ssize_t)sizeof(e) <= n; at += e.event_len) {
            memcpy(&e, events + at, sizeof(e));
            heard |= e.mask & FAN_CLOSE && e.pid == thread;
            if (e.fd >= 0)
                close(e.fd);
        }
    return heard;
}

bool nvidia_last_close(const struct nvidia_last_close *l, int fd)
{
    int group = listen_to(l, fd);

    close(fd);
    if (group < 0)
        return false;
    fanotify_mark(group, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL);
    return heard_of(group, (pid_t)syscall(SYS_gettid));
}

int nvidia_last_close_open(struct nvidia_last_close *l)
{
    static const unsigned int also[LAST_CLOSE_GROUPS] = {FAN_REPORT_FID, 0};
    int fd, e = 0;

    for (int i = 0; i < LAST_CLOSE_GROUPS; i++) {
        l->group[i] = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_TID | also[i],
                                    O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (l->group[i] < 0)
            e = -errno;
    }
    if (l->group[0] < 0 && l->group[1] < 0)
        return e;
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    e = fd < 0 ? -errno : nvidia_last_close(l, fd) ? 0 : -ENOSYS;
    if (e < 0)
        nvidia_last_close_end(l);
    return e;
}

void nvidia_last_close_end(const struct nvidia_last_close *l)
{
    for (int i = 0; i < LAST_CLOSE_GROUPS; i++)
        if (l->group[i] >= 0)
            close(l->group[i]);
}

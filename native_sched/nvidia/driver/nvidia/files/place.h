/* A descriptor of another process, by which an open file is fetched again. */
#ifndef MGPU_FD_PLACE_H
#define MGPU_FD_PLACE_H
#include <stdbool.h>
#include <sys/types.h>

/* A thread can have a descriptor table of its own, so the thread comes first. */
struct fd_place {
    pid_t tid, tgid;
    int fd;
};

static inline bool fd_place_same(const struct fd_place *a, const struct fd_place *b)
{
    return a->tgid == b->tgid && a->fd == b->fd && a->tid == b->tid;
}

/* A duplicate of that descriptor. -ESRCH, -EBADF. */
int fd_place_fetch(const struct fd_place *at);
#endif

#define _GNU_SOURCE
#include "nvidia_apart.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>

struct apart {
    const struct nvidia_host *host;
    int fd;
    uint32_t cmd;
    void *outer;
    int result;
};

static void *call(void *arg)
{
    struct apart *a = arg;

    a->result = unshare(CLONE_FILES) < 0 ? -errno : a->host->ioctl(a->fd, a->cmd, a->outer);
    return NULL;
}

int nvidia_ioctl_apart(const struct nvidia_host *host, int fd, uint32_t cmd, void *outer)
{
    struct apart a = {.host = host, .fd = fd, .cmd = cmd, .outer = outer};
    pthread_t thread;
    int e = -pthread_create(&thread, NULL, call, &a);

    if (e < 0)
        return e;
    pthread_join(thread, NULL);
    return a.result;
}

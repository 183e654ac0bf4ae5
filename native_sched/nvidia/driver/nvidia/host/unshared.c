#define _GNU_SOURCE
#include "unshared.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Read-locked by threads that have a copy of our descriptors. */
static pthread_rwlock_t copies = PTHREAD_RWLOCK_INITIALIZER;

struct unshared_call {
    const struct nvidia_host *host;
    int fd;
    uint32_t cmd;
    void *outer;
    int result;
};

static void *call(void *arg)
{
    struct unshared_call *a = arg;

    if (unshare(CLONE_FILES) < 0) {
        a->result = -errno;
        return NULL;
    }
    a->result = a->host->ioctl(a->fd, a->cmd, a->outer);
    /* pthread_join() may return before the thread's table is gone. */
    syscall(SYS_close_range, 0, ~0u, 0);
    return NULL;
}

int nvidia_unshared_ioctl(const struct nvidia_host *host, int fd, uint32_t cmd, void *outer)
{
    struct unshared_call a = {.host = host, .fd = fd, .cmd = cmd, .outer = outer};
    pthread_t thread;
    int e;

    pthread_rwlock_rdlock(&copies);
    if ((e = -pthread_create(&thread, NULL, call, &a)) == 0)
        pthread_join(thread, NULL);
    pthread_rwlock_unlock(&copies);
    return e < 0 ? e : a.result;
}

bool nvidia_unshared_hold(void)
{
    return pthread_rwlock_trywrlock(&copies) == 0;
}

void nvidia_unshared_release(void)
{
    pthread_rwlock_unlock(&copies);
}

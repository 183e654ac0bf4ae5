#include "thread_call.h"
#include "base/scoped.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RAN_MAX_MS = 100 };

/* 0, or a negative errno. */
static int read_of(pid_t tid, const char *name, char *text, size_t bytes)
{
    char path[48];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, name);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, bytes - 1);
    if (n < 0)
        return -errno;
    text[n] = 0;
    return 0;
}

static uint64_t ran_ns(pid_t tid)
{
    unsigned long long ns;
    char text[128];

    return read_of(tid, "schedstat", text, sizeof(text)) == 0 && sscanf(text, "%llu", &ns) == 1 ? ns : 0;
}

struct thread_call thread_call_of(pid_t tid, uint32_t cmd, uint64_t at)
{
    return (struct thread_call){.tid = tid, .cmd = cmd, .at = at, .ran_ns = ran_ns(tid)};
}

/* Stopped, traced or ended: no thread is that inside of a driver. */
static bool stands(pid_t tid)
{
    char text[512], *name_end;

    return read_of(tid, "stat", text, sizeof(text)) == 0 && (name_end = strrchr(text, ')')) && name_end[1] &&
           strchr("TtZX", name_end[2]);
}

bool thread_call_is_over(const struct thread_call *c)
{
    unsigned long long cmd, at;
    char text[256];
    long nr;
    int e = read_of(c->tid, "syscall", text, sizeof(text));

    if (e < 0) /* the thread has ended, or it is not said */
        return (e == -ENOENT || e == -ESRCH) && access("/proc/self/syscall", F_OK) == 0;
    if (!strncmp(text, "running", 7))
        return ran_ns(c->tid) > c->ran_ns + RAN_MAX_MS * 1000000ull;
    return stands(c->tid) || sscanf(text, "%ld %*x %llx %llx", &nr, &cmd, &at) != 3 || nr != SYS_ioctl ||
           (uint32_t)cmd != c->cmd || at != c->at;
}

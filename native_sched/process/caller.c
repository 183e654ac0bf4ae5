#define _GNU_SOURCE
#include "caller.h"
#include "base/scoped.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

static struct caller_entry *entry_of(struct caller *c, bool renew);

static void forget(struct caller_entry *e)
{
    scoped_close(&e->pidfd);
    scoped_close(&e->memory);
    *e = (struct caller_entry){.pidfd = -1, .memory = -1};
}

void caller_init(struct caller *c, int listener, struct seccomp_notif *req)
{
    *c = (struct caller){.listener = listener, .req = req};
    for (int i = 0; i < CALLER_CACHE; i++)
        c->entry[i].pidfd = c->entry[i].memory = -1;
    for (int i = 0; i < MARKED_FILES; i++)
        c->marked[i].mark.epoll = -1;
}

void caller_destroy(struct caller *c)
{
    for (int i = 0; i < CALLER_CACHE; i++)
        forget(&c->entry[i]);
    for (int i = 0; i < MARKED_FILES; i++)
        weak_ref_drop(&c->marked[i].mark);
}

bool caller_waits(const struct caller *c)
{
    uint64_t id = c->req->id;

    return ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

static int read_small(const char *format, pid_t pid, int fd, char *buf, size_t bytes)
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof(path), format, (int)pid, fd);
    scoped_fd int f = open(path, O_RDONLY | O_CLOEXEC);
    if (f < 0)
        return -errno;
    n = read(f, buf, bytes - 1);
    if (n < 0)
        return -errno;
    buf[n] = 0;
    return 0;
}

/* The kernel lists a process's threads from its leader on (first_tid() in fs/proc/base.c). Little of the list
 * is read, however many there are. What /proc/TID/status says besides is as long as the thread has groups. */
static pid_t leader_of(pid_t tid)
{
    struct {
        uint64_t ino;
        int64_t next;
        uint16_t bytes;
        uint8_t type;
        char name[13];
    } entry[4]; /* as long as those of short names are: two come before it */
    char path[40], *at = (char *)entry;
    long n;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)tid);
    scoped_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = syscall(SYS_getdents64, fd, entry, sizeof(entry));
    for (long i = 0; i < n; i += ((uint16_t *)(void *)(at + i))[8])
        if (at[i + 19] != '.')
            return (pid_t)strtol(at + i + 19, NULL, 10);
    return 0;
}

/* The names of the process behind the pidfd. */
static int names_of(int pidfd, struct process_id *out)
{
    char text[512], *p;
    int e = read_small("/proc/self/fdinfo/%d", pidfd, 0, text, sizeof(text));

    *out = (struct process_id){0};
    if (e < 0)
        return e;
    if (!(p = strstr(text, "\nNSpid:")))
        return -ESRCH;
    for (p += 7; out->levels < PID_LEVELS && *p && *p != '\n'; out->levels++) {
        out->at[out->levels] = (pid_t)strtol(p, &p, 10);
        p += strspn(p, " \t");
    }
    out->tgid = out->at[0];
    return out->tgid > 0 ? 0 : -ESRCH;
}

int caller_process_id_of(pid_t tid, struct process_id *out)
{
    scoped_fd int leader = (int)syscall(SYS_pidfd_open, leader_of(tid), 0);

    return leader < 0 ? -ESRCH : names_of(leader, out);
}

int caller_process_id(struct caller *c, struct process_id *out)
{
    const struct caller_entry *e = entry_of(c, false);

    if (!e)
        return -ESRCH;
    *out = e->who;
    return 0;
}

/* All by the thread's id, which may name another one by then: see entry_of(). */
static int open_all(pid_t tid, struct caller_entry *e)
{
    char path[32];
    int error;

    e->pidfd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
    if ((error = caller_process_id_of(tid, &e->who)) < 0)
        return error;
    if (e->pidfd <
        0) { /* before Linux 6.9 only thread group leaders can be named; threads share their files */
        e->pidfd = (int)syscall(SYS_pidfd_open, e->who.tgid, 0);
        e->once = true;
    }
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)tid);
    e->memory = open(path, O_RDWR | O_CLOEXEC);
    return e->pidfd < 0 || e->memory < 0 ? -ESRCH : 0;
}

/* Signal 0 is not delivered; a lack of permission says that the process exists. */
static bool is_dead(const struct caller_entry *e)
{
    return syscall(SYS_pidfd_send_signal, e->pidfd, 0, NULL, 0) < 0 && errno == ESRCH;
}

/* The cache entry of the calling thread, fresh when `renew`. NULL when the caller is gone. Asks the kernel
 * once for each notification whether the thread that was looked up is still alive: its id may have come
 * again. */
static struct caller_entry *entry_of(struct caller *c, bool renew)
{
    pid_t tid = (pid_t)c->req->pid;
    struct caller_entry *e = &c->entry[(uint32_t)tid % CALLER_CACHE];

    if (!renew && e->tid == tid && (e->served == c->req->id || (!e->once && !is_dead(e)))) {
        e->served = c->req->id;
        return e;
    }
    forget(e);
    if (open_all(tid, e) < 0 || !caller_waits(c)) {
        forget(e);
        return NULL;
    }
    e->tid = tid;
    e->served = c->req->id;
    return e;
}

pid_t caller_tgid(struct caller *c)
{
    const struct caller_entry *e = entry_of(c, false);

    return e ? e->who.tgid : 0;
}

int caller_fetch_fd(struct caller *c, int fd)
{
    struct caller_entry *e = entry_of(c, false);
    int got;

    if (!e)
        return -ESRCH;
    got = (int)syscall(SYS_pidfd_getfd, e->pidfd, fd, 0);
    if (got < 0 && errno == ESRCH && (e = entry_of(c, true)))
        got = (int)syscall(SYS_pidfd_getfd, e->pidfd, fd, 0);
    return got < 0 ? -errno : got;
}

/* A process's threads have their files in common. Only a guess where to look, like all of a dead thread's
 * entry: what is there is compared. */
static struct marked_file *marked_of(struct caller *c, int fd)
{
    const struct caller_entry *e = entry_of(c, false);

    return e ? &c->marked[((uint32_t)e->who.tgid * 5 + (uint32_t)fd) % MARKED_FILES] : NULL;
}

bool caller_recall_file(struct caller *c, int fd, struct file_identity *out)
{
    struct marked_file *m = marked_of(c, fd);
    int order;

    if (!m || m->mark.epoll < 0)
        return false;
    order = weak_ref_compare_in(&m->mark, (pid_t)c->req->pid, fd);
    if (order == -ENOENT)
        weak_ref_drop(&m->mark);
    m->missed = order ? m->missed + 1 : 0;
    *out = m->identity;
    return !order;
}

void caller_remember_file(struct caller *c, int fd, int ours, const struct file_identity *identity)
{
    enum { MISSES = 4 }; /* marking costs as much as some look-ups: not for two files that take turns */
    struct marked_file *m = marked_of(c, fd);
    int e;

    if (!m || c->cannot_mark || (m->mark.epoll >= 0 && m->missed < MISSES))
        return;
    weak_ref_drop(&m->mark);
    m->identity = *identity;
    m->missed = 0;
    e = weak_ref_take(ours, &m->mark);
    c->cannot_mark = e == -ENOSYS || e == -EOPNOTSUPP || e == -EPERM;
}

int caller_replace_fd(struct caller *c, int fd, int ours)
{
    struct seccomp_notif_addfd add = {
        .id = c->req->id,
        .flags = SECCOMP_ADDFD_FLAG_SETFD,
        .srcfd = (uint32_t)ours,
        .newfd = (uint32_t)fd,
    };
    char text[512], *p;

    if (read_small("/proc/%d/fdinfo/%d", (pid_t)c->req->pid, fd, text, sizeof(text)) == 0 &&
        (p = strstr(text, "flags:")))
        add.newfd_flags = (uint32_t)strtoul(p + 6, NULL, 8) & O_CLOEXEC;
    return ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ? -errno : 0;
}

/* Between our memory and the caller's, by the descriptor that was opened while it waited: whichever thread
 * has its id by now. Where nothing is to be had there, the thread may have another memory since an exec(). */
static int copy(struct caller *c, bool out, uint64_t at, void *bytes, size_t n)
{
    ssize_t done = 0;

    for (int renewed = 0; renewed < 2 && done != (ssize_t)n; renewed++) {
        const struct caller_entry *e = entry_of(c, renewed);

        if (!e)
            return -EFAULT;
        done = out ? pwrite(e->memory, bytes, n, (off_t)at) : pread(e->memory, bytes, n, (off_t)at);
    }
    return done == (ssize_t)n ? 0 : -EFAULT;
}

int caller_read(struct caller *c, uint64_t at, void *to, size_t bytes)
{
    return copy(c, false, at, to, bytes);
}

int caller_read_ends(struct caller *c, uint64_t at, uint8_t *to, size_t first, size_t bytes, size_t last)
{
    int e = copy(c, false, at, to, first);

    return e < 0 ? e : copy(c, false, at + bytes - last, to + bytes - last, last);
}

/* One copy over both and the gap between them, where that is short: false when it is not, or is
 * unreadable. */
static bool read_span(struct caller *c, uint64_t at, void *outer, size_t bytes, uint64_t params_at,
                      void *params, size_t params_bytes)
{
    enum { SPAN_MAX = 1024 };
    uint8_t span[SPAN_MAX];
    uint64_t low = at < params_at ? at : params_at;
    uint64_t end = at + bytes > params_at + params_bytes ? at + bytes : params_at + params_bytes;

    if (end < low || end - low > SPAN_MAX || caller_read(c, low, span, end - low) < 0)
        return false;
    memcpy(outer, span + (at - low), bytes);
    memcpy(params, span + (params_at - low), params_bytes);
    return true;
}

int caller_read_outer(struct caller *c, uint64_t at, void *outer, size_t bytes, void *params,
                      size_t params_max, uint64_t *guessed_at, size_t *guessed_bytes)
{
    const struct caller_entry *e = entry_of(c, false);
    size_t guess;
    int error;

    *guessed_bytes = 0;
    if (!e)
        return -ESRCH;
    guess = e->params_bytes < params_max ? e->params_bytes : params_max;
    *guessed_at = at + (uint64_t)e->params_delta;
    if (guess && read_span(c, at, outer, bytes, *guessed_at, params, guess)) {
        *guessed_bytes = guess;
        return 0;
    }
    if ((error = caller_read(c, at, outer, bytes)) < 0)
        return error;
    if (guess && caller_read(c, *guessed_at, params, guess) == 0)
        *guessed_bytes = guess;
    return 0;
}

void caller_learn_params(struct caller *c, uint64_t outer_at, uint64_t params_at, uint32_t bytes)
{
    struct caller_entry *e = entry_of(c, false);

    if (!e)
        return;
    e->params_delta = (int64_t)(params_at - outer_at);
    e->params_bytes = bytes;
}

int caller_write_both(struct caller *c, uint64_t at, const void *outer, size_t bytes, uint64_t params_at,
                      const void *params, size_t params_bytes)
{
    int e = copy(c, true, at, (void *)(uintptr_t)outer, bytes);

    return e < 0 ? e : copy(c, true, params_at, (void *)(uintptr_t)params, params_bytes);
}

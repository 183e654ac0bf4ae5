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
#include <sys/uio.h>
#include <unistd.h>

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

void caller_init(struct caller *c, int listener, struct seccomp_notif *req)
{
    *c = (struct caller){.listener = listener, .req = req};
    for (int i = 0; i < CALLER_CACHE; i++)
        c->entry[i].pidfd = -1;
    for (int i = 0; i < MARKED_FILES; i++)
        c->marked[i].mark.epoll = -1;
}

void caller_destroy(struct caller *c)
{
    for (int i = 0; i < CALLER_CACHE; i++)
        if (c->entry[i].pidfd >= 0)
            close(c->entry[i].pidfd);
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

/* The start of a line of /proc/PID/status, enough for what we read of it. */
struct status_line {
    char text[128];
    size_t bytes;
};

static void use_line(const struct status_line *l, struct process_id *out)
{
    char *p = (char *)(uintptr_t)l->text;

    if (!strncmp(p, "Tgid:", 5)) {
        out->tgid = (pid_t)strtol(p + 5, NULL, 10);
    } else if (!strncmp(p, "NStgid:", 7)) {
        for (p += 7; out->levels < PID_LEVELS && *p; out->levels++) {
            out->at[out->levels] = (pid_t)strtol(p, &p, 10);
            p += strspn(p, " \t");
        }
    }
}

/* By pieces: a process can be in 65536 groups, whose line comes before the one we want. */
static int read_process_id(pid_t tid, struct process_id *out)
{
    struct status_line line = {.bytes = 0};
    char path[40], piece[1024];
    ssize_t n;

    *out = (struct process_id){0};
    snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    while ((n = read(fd, piece, sizeof(piece))) > 0 && !out->levels) {
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != '\n') {
                if (line.bytes < sizeof(line.text) - 1)
                    line.text[line.bytes++] = piece[i];
                continue;
            }
            line.text[line.bytes] = '\0';
            use_line(&line, out);
            line.bytes = 0;
        }
    }
    return out->tgid && out->levels ? 0 : -ESRCH;
}

int caller_process_id(struct caller *c, struct process_id *out)
{
    return read_process_id((pid_t)c->req->pid, out);
}

int caller_process_id_of(pid_t tid, struct process_id *out)
{
    return read_process_id(tid, out);
}

static int open_pidfd(pid_t tid, struct caller_entry *e)
{
    struct process_id id;
    int fd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD), error = read_process_id(tid, &id);

    if (error < 0) {
        if (fd >= 0)
            close(fd);
        return error;
    }
    e->tgid = id.tgid;
    if (fd < 0) { /* before Linux 6.9 only thread group leaders can be named; threads share their files */
        fd = (int)syscall(SYS_pidfd_open, id.tgid, 0);
        e->once = true;
    }
    return fd < 0 ? -errno : fd;
}

/* The cache entry of the calling thread, fresh when `renew`. NULL when the caller is gone. */
static struct caller_entry *entry_of(struct caller *c, bool renew)
{
    pid_t tid = (pid_t)c->req->pid;
    struct caller_entry *e = &c->entry[(uint32_t)tid % CALLER_CACHE];
    int fd;

    if (!renew && e->tid == tid && e->pidfd >= 0 && !(e->once && e->served != c->req->id))
        return e;
    if (e->pidfd >= 0)
        close(e->pidfd);
    *e = (struct caller_entry){.tid = tid, .pidfd = -1, .served = c->req->id};
    fd = open_pidfd(tid, e);
    if (fd < 0)
        return NULL;
    e->pidfd = fd;
    if (!caller_waits(c)) /* the thread id may have named another thread meanwhile */
        e->tid = 0;
    return e->tid ? e : NULL;
}

/* Signal 0 is not delivered; a lack of permission says that the process exists. */
static bool is_dead(const struct caller_entry *e)
{
    return syscall(SYS_pidfd_send_signal, e->pidfd, 0, NULL, 0) < 0 && errno == ESRCH;
}

pid_t caller_tgid(struct caller *c)
{
    const struct caller_entry *e = entry_of(c, false);

    if (e && is_dead(e))
        e = entry_of(c, true);
    return e ? e->tgid : 0;
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

    return e ? &c->marked[((uint32_t)e->tgid * 5 + (uint32_t)fd) % MARKED_FILES] : NULL;
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

static void *remote(uint64_t at)
{
    return (void *)(uintptr_t)at;
}

int caller_read(struct caller *c, uint64_t at, void *to, size_t bytes)
{
    struct iovec l = {to, bytes}, r = {remote(at), bytes};

    return process_vm_readv((pid_t)c->req->pid, &l, 1, &r, 1, 0) == (ssize_t)bytes ? 0 : -EFAULT;
}

int caller_read_ends(struct caller *c, uint64_t at, uint8_t *to, size_t first, size_t bytes, size_t last)
{
    struct iovec l[2] = {{to, first}, {to + bytes - last, last}};
    struct iovec r[2] = {{remote(at), first}, {remote(at + bytes - last), last}};

    return process_vm_readv((pid_t)c->req->pid, l, 2, r, 2, 0) == (ssize_t)(first + last) ? 0 : -EFAULT;
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
    struct iovec l[2] = {{outer, bytes}}, r[2] = {{remote(at), bytes}};
    size_t guess;
    ssize_t n;

    *guessed_bytes = 0;
    if (!e)
        return -ESRCH;
    guess = e->params_bytes < params_max ? e->params_bytes : params_max;
    *guessed_at = at + (uint64_t)e->params_delta;
    if (guess && read_span(c, at, outer, bytes, *guessed_at, params, guess)) {
        *guessed_bytes = guess;
        return 0;
    }
    l[1] = (struct iovec){params, guess};
    r[1] = (struct iovec){remote(*guessed_at), guess};
    n = process_vm_readv((pid_t)c->req->pid, l, 2, r, guess ? 2 : 1, 0);
    if (n < (ssize_t)bytes)
        return caller_read(c, at, outer, bytes);
    if (n == (ssize_t)(bytes + guess))
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
    struct iovec l[2], r[2];
    unsigned int n = 0;

    if (bytes) {
        l[n] = (struct iovec){(void *)(uintptr_t)outer, bytes};
        r[n++] = (struct iovec){remote(at), bytes};
    }
    if (params_bytes) {
        l[n] = (struct iovec){(void *)(uintptr_t)params, params_bytes};
        r[n++] = (struct iovec){remote(params_at), params_bytes};
    }
    if (!n)
        return 0;
    return process_vm_writev((pid_t)c->req->pid, l, n, r, n, 0) == (ssize_t)(bytes + params_bytes) ? 0
                                                                                                   : -EFAULT;
}

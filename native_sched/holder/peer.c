#define _GNU_SOURCE
#include "peer.h"
#include "events.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

static bool same_namespace(pid_t pid, const char *kind)
{
    char theirs[48], ours[32];
    struct stat a, b;

    snprintf(theirs, sizeof(theirs), "/proc/%d/ns/%s", (int)pid, kind);
    snprintf(ours, sizeof(ours), "/proc/self/ns/%s", kind);
    return stat(theirs, &a) == 0 && stat(ours, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool is_gone(pid_t pid)
{
    char path[32];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &st) < 0 && (errno == ENOENT || errno == ESRCH);
}

static bool is_root_here(int fd, bool may_be_gone)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    /* pid 0: it lives in a pid namespace that we cannot see into. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || who.uid != 0 || who.pid <= 0)
        return false;
    return (same_namespace(who.pid, "pid") && same_namespace(who.pid, "user")) ||
           (may_be_gone && is_gone(who.pid));
}

int peer_accept(int listening, bool may_be_gone)
{
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0) {
        /* It would be ready again at once. */
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            usleep(ACCEPT_PAUSE_US);
        return -1;
    }
    if (is_root_here(fd, may_be_gone))
        return fd;
    say("connection refused: it is not from root of this node");
    close(fd);
    return -1;
}

int peer_process(int fd, pid_t *pid)
{
    struct ucred who;
    socklen_t n = sizeof(who), m = sizeof(int);
    int pidfd = -1;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || who.pid <= 0)
        return -1;
    *pid = who.pid;
    /* Older kernels: by its number, which is still its own if it waits for an answer, as mgpud does. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &m) < 0 && errno == ENOPROTOOPT)
        pidfd = (int)syscall(SYS_pidfd_open, who.pid, 0);
    return pidfd;
}

int process_signal(int pidfd, int signal)
{
    return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

bool process_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    return poll(&p, 1, 0) > 0 && p.revents & POLLIN;
}

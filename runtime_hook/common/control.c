#include "control.h"
#include "../../base/clock.h"

#include "base/scoped.h"
#include "connection.h"
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A mgpud that was killed is followed by the next within a fraction of a second; several may be, one after
 * the other. */
enum { RESTART_MS = 10000, LOOK_US = 50000, LOOK_S = 1 };

static int not_answering(const char *path, unsigned int timeout_s, int error, struct error *why)
{
    if (error == EAGAIN || error == EWOULDBLOCK)
        return fail(why, ETIMEDOUT, "see what mgpud logs, then try again",
                    "mgpud did not answer on %s within %u s", path, timeout_s);
    if (error == ENAMETOOLONG)
        return fail(why, error, "use a shorter path", "%s is too long for a socket", path);
    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
        return fail(why, error, "try again", "cannot make a socket: %s", strerror(error));
    if (error == EACCES || error == EPERM)
        return fail(why, error, "run the container as root", "mgpud's socket %s: %s", path, strerror(error));
    /* podman takes the kernel's words for a program of the image that was not found, and says so. */
    return fail(why, error, "start mgpud, then try again", "mgpud is not running: no answer on %s (%s)", path,
                error == ENOENT ? "no such socket" : strerror(error));
}

static ssize_t call_once(const char *path, const char *request, size_t bytes, char *reply,
                         unsigned int timeout_s, struct error *why)
{
    scoped_fd int fd = -1;
    ssize_t n;

    if (bytes > CONTROL_MAX_BYTES)
        return fail(why, EMSGSIZE, "the container's state is too large for mgpu",
                    "%zu bytes for mgpud, at most %d", bytes, CONTROL_MAX_BYTES);
    if ((fd = connection_to(path, timeout_s)) < 0)
        return not_answering(path, timeout_s, -fd, why);
    if (send(fd, request, bytes, MSG_NOSIGNAL) < 0)
        return not_answering(path, timeout_s, errno, why);
    /* With MSG_TRUNC the length is the packet's own, however much of it fitted. */
    n = recv(fd, reply, CONTROL_MAX_BYTES, MSG_TRUNC);
    if (n < 0)
        return not_answering(path, timeout_s, errno, why);
    if (n == 0)
        return not_answering(path, timeout_s, ECONNRESET, why);
    if (n > CONTROL_MAX_BYTES)
        return fail(why, EMSGSIZE, "see what mgpud logs", "mgpud's reply has %zd bytes, at most %d", n,
                    CONTROL_MAX_BYTES);
    return n;
}

/* Whether the holder lives, which has mgpud started again. It is asked for a kind of socket that its own is
 * not: the kernel says so where there is one, and the holder sees nothing of it. */
static bool is_restarting(const char *path)
{
    char holder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    const char *slash = strrchr(path, '/');
    int folder_bytes = slash ? (int)(slash - path) : 0;
    int n = snprintf(holder, sizeof(holder), "%.*s/seccomp.sock", folder_bytes, path);
    scoped_fd int fd = n < (int)sizeof(holder) ? connection_to(holder, LOOK_S) : -ENAMETOOLONG;

    return fd == -EPROTOTYPE;
}

static bool is_not_running(ssize_t result)
{
    return result == -ENOENT || result == -ECONNREFUSED || result == -ECONNRESET || result == -EPIPE;
}

ssize_t control_call(const char *path, const char *request, size_t bytes, char *reply, unsigned int timeout_s,
                     struct error *why)
{
    const int64_t end_ms = (int64_t)monotonic_ns() / 1000000 + RESTART_MS;
    ssize_t n;

    while (is_not_running(n = call_once(path, request, bytes, reply, timeout_s, why)) &&
           (int64_t)monotonic_ns() / 1000000 < end_ms && is_restarting(path))
        usleep(LOOK_US);
    return n;
}

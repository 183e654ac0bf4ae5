#define _GNU_SOURCE
#include "manager.h"
#include "received.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un at = {.sun_family = AF_UNIX};
static socklen_t at_bytes;
static int from = -1;

void manager_init(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;

    if (n < 2 || n >= sizeof(at.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(at.sun_path, path, n);
    /* Abstract names begin with a NUL byte. */
    if (path[0] == '@')
        at.sun_path[0] = '\0';
    at_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool manager_exists(void)
{
    return from >= 0;
}

int manager_tell(const char *lines, const int *fds, size_t count)
{
    struct iovec iov = {(char *)(uintptr_t)lines, strlen(lines)};
    union received_space control;
    struct msghdr msg = {.msg_name = &at, .msg_namelen = at_bytes, .msg_iov = &iov, .msg_iovlen = 1};

    if (!manager_exists())
        return -ENOTCONN;
    if (count)
        give_fds(&msg, &control, fds, count);
    if (sendmsg(from, &msg, MSG_NOSIGNAL) >= 0)
        return 0;
    /* ETOOMANYREFS: too many descriptors are under way. */
    return errno == EINTR || errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS ? -EAGAIN : -errno;
}

#include "connection.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

int connection_to(const char *path, unsigned int timeout_s)
{
    /* A connect waits for room in the backlog as long as a send may wait. */
    const struct timeval limit = {.tv_sec = timeout_s};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, error;

    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    error = errno;
    close(fd);
    return -error;
}

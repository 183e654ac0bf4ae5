/* Speaks to a socket of mgpu's from inside a container that was given it.
 * Usage: knock stream|packet PATH TEXT [fd]   fd: a descriptor goes with it, as a runtime sends a listener
 * Prints "connect ERRNO", or what it was answered, or "closed". */
#define _GNU_SOURCE
#include "../rm.h"
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = 3};
    char room[CMSG_SPACE(sizeof(int))] = {0}, answer[4096];
    struct msghdr m = {.msg_iovlen = 1};
    struct iovec iov;
    ssize_t n;
    int fd;

    if (argc < 4)
        return 2;
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", argv[2]);
    fd = socket(AF_UNIX, !strcmp(argv[1], "stream") ? SOCK_STREAM : SOCK_SEQPACKET, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof(at))) {
        say("connect %d", errno);
        return 0;
    }
    iov = (struct iovec){argv[3], strlen(argv[3])};
    m.msg_iov = &iov;
    if (argc > 4) {
        struct cmsghdr *h;
        int sent = memfd_create("listener", 0);

        m.msg_control = room;
        m.msg_controllen = sizeof(room);
        h = CMSG_FIRSTHDR(&m);
        *h = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(h), &sent, sizeof(sent));
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sendmsg(fd, &m, MSG_NOSIGNAL);
    n = recv(fd, answer, sizeof(answer) - 1, 0);
    if (n > 0)
        say("%.*s", (int)n, answer);
    else
        say(n == 0 || errno == ECONNRESET ? "closed" : "no answer");
    return 0;
}

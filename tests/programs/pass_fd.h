/* A descriptor in a message of one byte. */
#ifndef MGPU_TESTS_PASS_FD_H
#define MGPU_TESTS_PASS_FD_H
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* The descriptor that was sent, or the one that came; -1: it did not go. fd: nothing where one is
 * received. */
static inline int pass_fd(int socket, int fd, bool receives)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    char byte = 0;
    struct iovec text = {&byte, 1};
    struct msghdr msg = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    if ((receives ? recvmsg(socket, &msg, 0) : sendmsg(socket, &msg, 0)) != 1)
        return -1;
    memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
    return fd;
}
#endif

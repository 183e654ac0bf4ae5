#define _GNU_SOURCE
#include "intake.h"
#include "received.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void intake_open(struct intake *in, int fd, int64_t now_ms)
{
    *in = (struct intake){
        .fd = fd,
        .listener = -1,
        .deadline_ms = now_ms + INTAKE_TIMEOUT_MS,
        .text = malloc(TEXT_MAX),
    };
}

void intake_close(struct intake *in)
{
    close_fd(&in->fd);
    close_fd(&in->listener);
    free(in->text);
    *in = (struct intake){.fd = -1, .listener = -1};
}

int intake_read(struct intake *in)
{
    union received_space control;
    struct iovec iov = {in->text + in->bytes, TEXT_MAX - in->bytes};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t n;
    bool complete;

    if (!in->text || in->bytes == TEXT_MAX)
        return -EMSGSIZE;
    n = recvmsg(in->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    received_fd(&msg, &in->listener);
    if (n == 0)
        return -ECONNRESET;
    complete = json_end_feed(&in->scan, in->text + in->bytes, (size_t)n);
    in->bytes += (size_t)n;
    if (in->scan.broken)
        return -EBADMSG;
    if (complete && in->listener < 0)
        return -EBADF;
    return complete;
}

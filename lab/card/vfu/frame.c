#include "frame.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct header {
    uint16_t id, command;
    uint32_t bytes, flags, error;
};
_Static_assert(sizeof(struct header) == FRAME_HEADER_BYTES, "as the protocol has it");

int frame_take_fd(struct frame *frame, uint32_t index)
{
    int fd = index < frame->fds ? frame->fd[index] : -1;

    if (fd >= 0)
        frame->fd[index] = -1;
    return fd;
}

void frame_close_fds(struct frame *frame)
{
    for (uint32_t i = 0; i < frame->fds; i++)
        if (frame->fd[i] >= 0)
            close(frame->fd[i]);
    frame->fds = 0;
}

static void take_fds(struct msghdr *message, struct frame *frame)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        size_t count;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (frame->fds < FRAME_FDS)
                frame->fd[frame->fds++] = fd;
            else
                close(fd);
        }
    }
}

/* So many bytes, or 0 when the other end closed before the first of them. */
static int receive(int socket, void *to, uint32_t bytes, struct frame *frame)
{
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(FRAME_FDS * sizeof(int))];
    uint32_t have = 0;

    while (have < bytes) {
        struct iovec piece = {(uint8_t *)to + have, bytes - have};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        ssize_t got;

        if (frame) {
            message.msg_control = room;
            message.msg_controllen = sizeof room;
        }
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (frame)
            take_fds(&message, frame);
        if (!got)
            return have ? -EPROTO : 0;
        have += (uint32_t)got;
    }
    return 1;
}

int frame_read(int socket, struct frame *frame)
{
    struct header header;
    int got;

    frame->fds = 0;
    got = receive(socket, &header, sizeof header, frame);
    if (got <= 0)
        goto out;
    frame->id = header.id;
    frame->command = header.command;
    frame->flags = header.flags;
    got = -EPROTO;
    if (header.bytes < sizeof header || header.bytes - sizeof header > FRAME_BODY_MAX)
        goto out;
    frame->bytes = header.bytes - (uint32_t)sizeof header;
    got = frame->bytes ? receive(socket, frame->body, frame->bytes, NULL) : 1;
    if (!got)
        got = -EPROTO;
out:
    if (got <= 0)
        frame_close_fds(frame);
    return got;
}

int frame_reply(int socket, const struct frame *to, int error, const void *body, uint32_t bytes)
{
    struct header header = {.id = to->id, .command = to->command, .flags = FRAME_REPLY};
    struct iovec piece[2] = {{&header, sizeof header}, {(void *)(uintptr_t)body, error ? 0 : bytes}};
    struct msghdr message = {.msg_iov = piece, .msg_iovlen = 2};

    if (to->flags & FRAME_NO_REPLY)
        return 0;
    if (error)
        header.flags |= FRAME_ERROR;
    header.error = (uint32_t)error;
    header.bytes = (uint32_t)(sizeof header + piece[1].iov_len);
    while (piece[0].iov_len + piece[1].iov_len) {
        ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        for (int i = 0; i < 2; i++) {
            size_t part = (size_t)sent < piece[i].iov_len ? (size_t)sent : piece[i].iov_len;

            piece[i].iov_base = (uint8_t *)piece[i].iov_base + part;
            piece[i].iov_len -= part;
            sent -= (ssize_t)part;
        }
    }
    return 0;
}

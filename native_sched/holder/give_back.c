#define _GNU_SOURCE
#include "give_back.h"
#include "received.h"
#include "table.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int give_back_read(int fd, struct mgpud_message *out)
{
    static char text[TEXT_MAX];
    struct iovec iov[2] = {{&out->head, sizeof(out->head)}, {text, sizeof(text)}};
    union received_space control;
    struct msghdr msg = {
        .msg_iov = iov,
        .msg_iovlen = 2,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    out->fd = -1;
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    received_fd(&msg, &out->fd);
    out->text = text;
    out->text_bytes = (size_t)n - sizeof(out->head);
    if (n >= (ssize_t)sizeof(out->head) && !(msg.msg_flags & MSG_TRUNC))
        return 0;
    give_back_done(out);
    return n ? -EBADMSG : -ECONNRESET;
}

bool give_back_keep(struct mgpud_message *s)
{
    struct held *h = held_find(s->head.id);
    char *text = NULL;

    if (!h && s->head.id && s->fd >= 0 && (text = malloc(s->text_bytes + 1))) {
        memcpy(text, s->text, s->text_bytes);
        if ((h = held_add(s->head.id, s->fd, text, s->text_bytes)))
            s->fd = -1;
        else
            free(text);
    }
    if (h)
        h->handed = true;
    return h;
}

void give_back_done(struct mgpud_message *s)
{
    close_fd(&s->fd);
}

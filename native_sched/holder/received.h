/* Descriptors that go and come with a message. */
#ifndef MGPU_HOLDER_RECEIVED_H
#define MGPU_HOLDER_RECEIVED_H
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union received_space {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(8 * sizeof(int))];
};

/* True if it was open. */
static inline bool close_fd(int *fd)
{
    bool open = *fd >= 0;

    if (open)
        close(*fd);
    *fd = -1;
    return open;
}

/* Puts descriptors into a message that is to be sent. */
static inline void give_fds(struct msghdr *msg, union received_space *room, const int *fds, size_t count)
{
    *room = (union received_space){.head = {
                                       .cmsg_level = SOL_SOCKET,
                                       .cmsg_type = SCM_RIGHTS,
                                       .cmsg_len = CMSG_LEN(count * sizeof(int)),
                                   }};
    memcpy(CMSG_DATA(&room->head), fds, count * sizeof(int));
    msg->msg_control = room;
    msg->msg_controllen = CMSG_SPACE(count * sizeof(int));
}

/* Keeps the first in *kept, unless it has one, and closes any other: there is to be exactly one. */
static inline void received_fd(struct msghdr *msg, int *kept)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
            if (*kept < 0)
                *kept = fd;
            else
                close(fd);
        }
    }
}
#endif

/* Descriptors that came with a message. */
#ifndef MGPU_HOLDER_RECEIVED_H
#define MGPU_HOLDER_RECEIVED_H
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union received_space {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(8 * sizeof(int))];
};

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

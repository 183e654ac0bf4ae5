/* The simulated card's process asked by a program itself, with nothing in between: what the driver takes by
 * itself. Any failure of the line ends the program with status 1. */
#ifndef CARD_LINE_H
#define CARD_LINE_H
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include "../../sim/abi/protocol.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct card_line {
    int fd;
    struct sim_request request;
    struct sim_reply reply;
};

static inline void card_connect(struct card_line *l, const char *socket_path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    strncpy(at.sun_path, socket_path, sizeof(at.sun_path) - 1);
    l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&at, sizeof(at)))
        exit(1);
}

/* *fd, where it is not NULL: the descriptor that came with the answer, or -1. */
static inline void card_ask(struct card_line *l, size_t payload, int *fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec in = {&l->reply, sizeof(l->reply)};
    struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1};
    const struct cmsghdr *h;

    if (send(l->fd, &l->request, offsetof(struct sim_request, payload) + payload, MSG_NOSIGNAL) < 0)
        exit(1);
    if (!fd) {
        if (recv(l->fd, &l->reply, sizeof(l->reply), 0) <= 0)
            exit(1);
        return;
    }
    msg.msg_control = &control;
    msg.msg_controllen = sizeof(control);
    if (recvmsg(l->fd, &msg, MSG_CMSG_CLOEXEC) <= 0)
        exit(1);
    *fd = -1;
    if ((h = CMSG_FIRSTHDR(&msg)))
        memcpy(fd, CMSG_DATA(h), sizeof(*fd));
}

/* The descriptor, which is the file as long as a process has it; its id in *file. */
static inline int card_open(struct card_line *l, enum sim_node node, uint32_t minor, uint64_t *file)
{
    int fd;

    memset(&l->request, 0, offsetof(struct sim_request, payload));
    l->request.op = SIM_OPEN;
    l->request.node = node;
    l->request.minor = minor;
    l->request.tgid = getpid();
    card_ask(l, 0, &fd);
    *file = l->reply.file;
    return l->reply.error ? -1 : fd;
}

/* What ioctl() would say: 0, and both structs hold the answer, or a negative errno. reply_fd: NULL for a call
 * that hands none out. */
static inline int card_call_sized(struct card_line *l, uint64_t file, uint64_t aux_file, uint32_t cmd,
                                  void *outer, uint32_t bytes, void *params, uint32_t params_bytes,
                                  int *reply_fd)
{
    memset(&l->request, 0, offsetof(struct sim_request, payload));
    l->request.op = SIM_IOCTL;
    l->request.cmd = cmd;
    l->request.file = file;
    l->request.aux_file = aux_file;
    l->request.tgid = getpid();
    l->request.outer_bytes = bytes;
    l->request.params_bytes = params_bytes;
    memcpy(l->request.payload, outer, bytes);
    if (params_bytes)
        memcpy(l->request.payload + bytes, params, params_bytes);
    card_ask(l, bytes + params_bytes, reply_fd);
    if (l->reply.error)
        return -abs(l->reply.error);
    memcpy(outer, l->reply.payload, bytes);
    if (params_bytes)
        memcpy(params, l->reply.payload + bytes, l->reply.params_bytes);
    return 0;
}

/* A command of RM's says how large its struct is. */
static inline int card_call(struct card_line *l, uint64_t file, uint64_t aux_file, uint32_t cmd, void *outer,
                            void *params, uint32_t params_bytes, int *reply_fd)
{
    return card_call_sized(l, file, aux_file, cmd, outer, RM_SIZE(cmd), params, params_bytes, reply_fd);
}
#endif

#define _GNU_SOURCE
#include "line.h"
#include "native_sched/nvidia/rm/lists.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_key_t line_key;
static pthread_once_t line_once = PTHREAD_ONCE_INIT;

static void line_free(void *p)
{
    struct line *l = p;

    if (l->fd >= 0)
        close(l->fd);
    free(l);
}

static void line_key_create(void)
{
    pthread_key_create(&line_key, line_free);
}

struct line *sim_line(void)
{
    struct line *l;

    pthread_once(&line_once, line_key_create);
    l = pthread_getspecific(line_key);
    if (!l && (l = calloc(1, sizeof(*l)))) {
        struct sched_param priority;
        int policy;

        l->fd = -1;
        l->nice = -1;
        l->realtime = !pthread_getschedparam(pthread_self(), &policy, &priority) && policy == SCHED_FIFO;
        pthread_setspecific(line_key, l);
    }
    return l;
}

int sim_dial(const struct driver *d)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), e;

    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&d->at, sizeof(d->at)) == 0)
        return fd;
    e = -errno;
    close(fd);
    return e;
}

/* A driver's call does not sleep in its caller until the card has answered: the scheduler's thread polls here
 * as it would there, and does not add the host's wake-up to the time that the card takes. Bounded, should the
 * card be gone. */
static void poll_for_answer(int fd)
{
    enum { POLLS_MAX = 600 }; /* some 300 us */
    char byte;

    for (int i = 0; i < POLLS_MAX; i++)
        if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN)
            return;
}

static ssize_t receive(int fd, struct sim_reply *r, int *got)
{
    union {
        struct cmsghdr head;
        char control[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {r, sizeof(*r)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    const struct cmsghdr *h;
    ssize_t n;

    if (!got)
        return recv(fd, r, sizeof(*r), 0);
    msg.msg_control = &control;
    msg.msg_controllen = sizeof(control);
    n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    *got = -1;
    if (n > 0 && (h = CMSG_FIRSTHDR(&msg)) && h->cmsg_type == SCM_RIGHTS)
        memcpy(got, CMSG_DATA(h), sizeof(int));
    return n;
}

int sim_ask(const struct driver *d, struct line *l, size_t payload, int *got)
{
    bool sent;
    size_t bytes = offsetof(struct sim_request, payload) + payload;

    l->request.realtime = l->realtime;
    if (l->nice < 0)
        l->nice = (int16_t)getpriority(PRIO_PROCESS, 0);
    l->request.nice = l->nice;
    if (l->fd < 0 && (l->fd = sim_dial(d)) < 0) {
        l->fd = -1;
        return -EIO;
    }
    sent = send(l->fd, &l->request, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
    if (sent && l->realtime)
        poll_for_answer(l->fd);
    if (sent && receive(l->fd, &l->reply, got) >= (ssize_t)offsetof(struct sim_reply, payload))
        return l->reply.error ? -abs(l->reply.error) : 0;
    close(l->fd);
    l->fd = -1;
    return -EIO;
}

int sim_open_control(struct driver *d, uint64_t *file)
{
    struct line *l = sim_line();
    int e, fd = -1;

    if (!l)
        return -ENOMEM;
    sim_begin(l, SIM_OPEN);
    l->request.node = SIM_NODE_CTL;
    l->request.tgid = getpid();
    if ((e = sim_ask(d, l, 0, &fd)) < 0 || fd < 0)
        return e < 0 ? e : -EIO;
    *file = l->reply.file;
    return fd;
}

/* Handing a mapping out is the only call whose answer carries a file. */
static bool hands_out(uint32_t cmd)
{
    return RM_NR(cmd) == NV_ESC_RM_MAP_MEMORY;
}

/* The lists that the parameters point to lie behind them, and go with them: the card follows no pointer. */
static size_t params_of(const struct driver_call *call)
{
    const struct rm_control *ctl = (const void *)call->outer;

    if (RM_NR(call->cmd) != NV_ESC_RM_CONTROL || !call->params)
        return call->params_bytes;
    return rm_bytes_with_lists(ctl->cmd, call->params, call->params_bytes);
}

int sim_execute(struct driver *d, struct driver_call *call)
{
    struct line *l = sim_line();
    size_t outer = call->outer_bytes, params = params_of(call);
    int e;

    call->reply_fd = -1;
    if (!l)
        return -ENOMEM;
    sim_begin(l, SIM_IOCTL);
    l->request.cmd = call->cmd;
    l->request.file = call->file->id;
    l->request.aux_file = call->aux_file ? call->aux_file->id : 0;
    l->request.tgid = call->tgid;
    l->request.outer_bytes = call->outer_bytes;
    l->request.params_bytes = (uint32_t)params;
    memcpy(l->request.payload, call->outer, outer);
    if (params)
        memcpy(l->request.payload + outer, call->params, params);
    if ((e = sim_ask(d, l, outer + params, hands_out(call->cmd) ? &call->reply_fd : NULL)) < 0)
        return e;
    if (l->reply.outer_bytes != outer || l->reply.params_bytes > params)
        return -EIO;
    memcpy(call->outer, l->reply.payload, outer);
    if (params)
        memcpy(call->params, l->reply.payload + outer, l->reply.params_bytes);
    return 0;
}

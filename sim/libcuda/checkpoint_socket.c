#include "checkpoint.h"
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LINGER_NS = 200 * 1000, NONE = -1 };

static int callers_end = NONE, own_end = NONE;
static struct {
    int reply_fd;         /* of the request that is being done */
    bool another_waits;   /* that is no question for the state: it stays in the socket */
    CUprocessState state; /* until it is done */
} now;

int checkpoint_socket(void)
{
    return callers_end;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = NONE;
}

bool requests_open(void)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return false;
    callers_end = ends[0];
    own_end = ends[1];
    return true;
}

void requests_close(void)
{
    close_end(&callers_end);
    close_end(&own_end);
}

/* The socket for the answer; NONE: what came is no request. */
static int receive(struct checkpoint_request *request, int flags)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {request, sizeof *request};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(own_end, &message, MSG_CMSG_CLOEXEC | flags);
    const struct cmsghdr *header = bytes > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    int fd;

    if (!header || header->cmsg_type != SCM_RIGHTS)
        return NONE;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    if (bytes == sizeof *request && request->pair_count <= RM_MAX_CARDS)
        return fd;
    close(fd);
    return NONE;
}

static void answer(int fd, CUresult result, CUprocessState state)
{
    struct checkpoint_reply reply = {(int32_t)result, state};

    send(fd, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

/* A question for the state is answered at once. */
static void peek_at_next(void)
{
    struct checkpoint_request request;
    int fd;

    now.another_waits = recv(own_end, &request, sizeof request, MSG_PEEK | MSG_DONTWAIT) > 0 &&
                        request.op != CHECKPOINT_STATE;
    if (now.another_waits)
        return;
    fd = receive(&request, MSG_DONTWAIT);
    if (fd >= 0)
        answer(fd, CUDA_SUCCESS, now.state);
}

bool checkpoint_linger(void)
{
    static const struct timespec least = {.tv_nsec = LINGER_NS};
    struct pollfd looked[] = {{.fd = now.reply_fd}, {.fd = own_end, .events = POLLIN}};

    ppoll(looked, now.another_waits ? 1 : 2, &least, NULL);
    if (looked[0].revents)
        return false;
    if (looked[1].revents & POLLIN)
        peek_at_next();
    return true;
}

bool request_next(struct checkpoint_request *request, CUprocessState state)
{
    now.state = state;
    now.another_waits = false;
    while ((now.reply_fd = receive(request, 0)) < 0)
        if (recv(own_end, request, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            return false;
    return true;
}

void request_answer(CUresult result, CUprocessState state)
{
    answer(now.reply_fd, result, state);
}

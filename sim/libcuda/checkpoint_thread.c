#include "../../base/clock.h"
#include "checkpoint.h"
#include "stream.h"
#include "thread.h"
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LINGER_NS = 200 * 1000, NS_PER_MS = 1000 * 1000, NONE = -1 };

static int callers_end = NONE, own_end = NONE;
static bool started;
static CUprocessState state;
static struct {
    int reply_fd;       /* of the request that is being done */
    bool another_waits; /* that is no question for the state: it stays in the socket */
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

void checkpoint_forget(void)
{
    close_end(&callers_end);
    close_end(&own_end);
    started = false;
    state = CU_PROCESS_STATE_RUNNING;
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

static void answer(int fd, CUresult result)
{
    struct checkpoint_reply reply = {(int32_t)result, state};

    send(fd, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

/* A question for the state is answered at once. */
static void look_at_next(void)
{
    struct checkpoint_request request;
    int fd;

    now.another_waits = recv(own_end, &request, sizeof request, MSG_PEEK | MSG_DONTWAIT) > 0 &&
                        request.op != CHECKPOINT_STATE;
    if (now.another_waits)
        return;
    fd = receive(&request, MSG_DONTWAIT);
    if (fd >= 0)
        answer(fd, CUDA_SUCCESS);
}

bool checkpoint_linger(void)
{
    static const struct timespec least = {.tv_nsec = LINGER_NS};
    struct pollfd looked[] = {{.fd = now.reply_fd}, {.fd = own_end, .events = POLLIN}};

    ppoll(looked, now.another_waits ? 1 : 2, &least, NULL);
    if (looked[0].revents)
        return false;
    if (looked[1].revents & POLLIN)
        look_at_next();
    return true;
}

/* No call is under way, nothing submitted is left to do, and no function of the program's will run. */
static bool is_quiet(void)
{
    return gate_empty() && contexts_drained() && host_functions_idle();
}

static CUresult lock(uint32_t timeout_ms)
{
    int64_t end_ms = (int64_t)monotonic_ns() / NS_PER_MS + timeout_ms;

    gate_close();
    while (!is_quiet()) {
        if (!checkpoint_linger() || (timeout_ms && (int64_t)monotonic_ns() / NS_PER_MS >= end_ms)) {
            gate_open();
            return CUDA_ERROR_NOT_READY;
        }
    }
    work_settle();
    return CUDA_SUCCESS;
}

static CUresult unlock(void)
{
    gate_open();
    return CUDA_SUCCESS;
}

static CUresult serve(const struct checkpoint_request *request)
{
    static const struct {
        CUprocessState from, to;
    } steps[] = {
        [CHECKPOINT_LOCK] = {CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED},
        [CHECKPOINT_CHECKPOINT] = {CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED},
        [CHECKPOINT_RESTORE] = {CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED},
        [CHECKPOINT_UNLOCK] = {CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING},
    };
    CUresult result;

    if (request->op == CHECKPOINT_STATE)
        return CUDA_SUCCESS;
    if (request->op > CHECKPOINT_UNLOCK)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (state != steps[request->op].from)
        return CUDA_ERROR_ILLEGAL_STATE;
    result = request->op == CHECKPOINT_LOCK         ? lock(request->timeout_ms)
             : request->op == CHECKPOINT_CHECKPOINT ? checkpoint_away()
             : request->op == CHECKPOINT_RESTORE    ? checkpoint_back(request->pairs, request->pair_count)
                                                    : unlock();
    if (!result)
        state = steps[request->op].to;
    return result;
}

static void *work(void *unused)
{
    struct checkpoint_request request;

    (void)unused;
    gate_exempt();
    for (;;) {
        now.another_waits = false;
        now.reply_fd = receive(&request, 0);
        if (now.reply_fd >= 0)
            answer(now.reply_fd, serve(&request));
        else if (recv(own_end, &request, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            return NULL; /* the program has closed it */
    }
}

void checkpoint_start(void)
{
    char name[16], own_name[16];
    int ends[2];

    if (started || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return;
    callers_end = ends[0];
    own_end = ends[1];
    /* It has its maker's name from its first moment, so that it is found once cuInit() has returned. */
    snprintf(name, sizeof name, CHECKPOINT_THREAD, callers_end);
    prctl(PR_GET_NAME, own_name);
    prctl(PR_SET_NAME, name);
    started = thread_start(work, NULL);
    prctl(PR_SET_NAME, own_name);
    if (!started)
        checkpoint_forget();
}

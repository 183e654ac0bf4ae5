#include "serve.h"
#include "../../base/clock.h"
#include "../../base/mutex.h"
#include "registers.h"
#include "wait.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    REQUEST_HEAD = offsetof(struct sim_request, payload),
    REPLY_HEAD = offsetof(struct sim_reply, payload),
    THREAD_STACK_BYTES = 256 << 10,
    ACCEPT_PAUSE_US = 10000,
};

/* Every connection whose thread may be at a call. */
struct connection {
    struct rm *rm;
    serve_fn serve;
    int fd;
    bool subscribes; /* and so is at no call */
    struct connection *next;
};
static pthread_mutex_t connections_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t connections_changed = PTHREAD_COND_INITIALIZER;
static struct connection *connections;

static void connection_enter(struct connection *connection)
{
    LOCKED(&connections_lock);
    connection->next = connections;
    connections = connection;
}

static void connection_leave(const struct connection *connection)
{
    struct connection **at;

    LOCKED(&connections_lock);
    for (at = &connections; *at != connection; at = &(*at)->next)
        ;
    *at = connection->next;
    close(connection->fd);
    pthread_cond_broadcast(&connections_changed);
}

static bool any_exited(void)
{
    for (const struct connection *c = connections; c; c = c->next) {
        struct pollfd p = {.fd = c->fd};

        if (!c->subscribes && poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
            return true;
    }
    return false;
}

/* An exited process may have calls in flight: in a driver it would not be gone before their end. A subscriber
 * that ends while it waits here is not waited for, not even by itself. */
static void finish_exited(int subscriber)
{
    LOCKED(&connections_lock);
    for (struct connection *c = connections; c; c = c->next)
        c->subscribes |= c->fd == subscriber;
    while (any_exited())
        pthread_cond_wait(&connections_changed, &connections_lock);
}

static int send_reply(int connection, const struct sim_reply *reply, int fd)
{
    struct iovec iov = {(void *)reply, REPLY_HEAD + reply->outer_bytes + reply->params_bytes};
    union {
        char bytes[CMSG_SPACE(sizeof fd)];
        struct cmsghdr align;
    } control = {0};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *header;

        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    return sendmsg(connection, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int do_open(struct rm *rm, const struct sim_request *request, struct sim_reply *reply, int *fd)
{
    struct sim_file *file;
    struct stat st;
    int error;

    pthread_mutex_lock(&rm->lock);
    error = file_open(rm, request, &file, fd);
    if (!error)
        reply->file = file->id;
    reply->reread_us = rm->reread_us;
    pthread_mutex_unlock(&rm->lock);
    if (!error && !fstat(*fd, &st))
        reply->ino = st.st_ino;
    return error;
}

static int do_ioctl(struct rm *rm, const struct sim_request *request, struct sim_reply *reply, int *fd)
{
    struct rm_call call = {
        .rm = rm,
        .aux_file = request->aux_file,
        .tgid = request->tgid,
        .cmd = request->cmd,
        .outer = reply->payload,
        .params = reply->payload + request->outer_bytes,
        .outer_bytes = request->outer_bytes,
        .params_bytes = request->params_bytes,
        .reply_fd = -1,
    };
    int error;

    memcpy(reply->payload, request->payload, request->outer_bytes + request->params_bytes);
    reply->outer_bytes = request->outer_bytes;
    reply->params_bytes = request->params_bytes;
    pthread_mutex_lock(&rm->lock);
    call.file = file_find(rm, request->file);
    error = call.file ? escape(&call) : -EBADF;
    pthread_mutex_unlock(&rm->lock);
    if (call.own_us)
        wait_until(monotonic_ns() + (uint64_t)call.own_us * 1000);
    *fd = call.reply_fd;
    return error;
}

static int do_userd(struct rm *rm, const struct sim_request *request, struct sim_reply *reply, int *fd)
{
    struct sim_userd_of of;
    uint64_t offset = 0;

    if (request->outer_bytes != sizeof of || request->params_bytes)
        return -EINVAL;
    memcpy(&of, request->payload, sizeof of);
    pthread_mutex_lock(&rm->lock);
    *fd = userd_fd(rm, request->file, &of, &offset);
    pthread_mutex_unlock(&rm->lock);
    if (*fd < 0)
        return *fd;
    memcpy(reply->payload, &offset, sizeof offset);
    reply->outer_bytes = sizeof offset;
    return 0;
}

static int do_files(struct rm *rm, const struct sim_request *request, struct sim_reply *reply)
{
    uint64_t id;

    reply->outer_bytes = request->outer_bytes / (uint32_t)sizeof id;
    LOCKED(&rm->lock);
    for (uint32_t i = 0; i < reply->outer_bytes; i++) {
        memcpy(&id, request->payload + i * sizeof id, sizeof id);
        reply->payload[i] = file_find(rm, id) != NULL;
    }
    return 0;
}

static int do_ended(struct rm *rm, const struct sim_request *request)
{
    bool there = true;
    uint64_t id;

    LOCKED(&rm->lock);
    for (uint32_t i = 0; there && i + sizeof id <= request->outer_bytes; i += sizeof id) {
        memcpy(&id, request->payload + i, sizeof id);
        there = file_is_held(rm, id);
    }
    return there ? 0 : -EBADF;
}

static int do_status(struct rm *rm, const struct sim_request *request, struct sim_reply *reply, int *fd)
{
    const struct sim_card *card = card_by_minor(rm, request->minor);
    struct sim_registers registers;

    if (!card)
        return -ENODEV;
    registers_tell(card->profile, &registers);
    memcpy(reply->payload, &registers, sizeof registers);
    reply->outer_bytes = sizeof registers;
    if (!rm->shows_engines)
        return 0;
    *fd = gpu_status_fd(card->gpu);
    return *fd < 0 ? *fd : 0;
}

static bool well_formed(const struct sim_request *request, ssize_t bytes)
{
    return bytes >= REQUEST_HEAD && request->outer_bytes <= SIM_PAYLOAD_MAX &&
           request->params_bytes <= SIM_PAYLOAD_MAX - request->outer_bytes &&
           (size_t)bytes == REQUEST_HEAD + (size_t)request->outer_bytes + request->params_bytes;
}

/* Serves one request; false ends the connection. */
static bool serve_one(struct rm *rm, int connection, struct sim_request *request, struct sim_reply *reply)
{
    ssize_t bytes = recv(connection, request, sizeof *request, MSG_TRUNC);
    int fd = -1, error = -EINVAL;

    if (bytes <= 0)
        return bytes < 0 && errno == EINTR;
    memset(reply, 0, REPLY_HEAD);
    if (well_formed(request, bytes)) {
        wait_as(request->realtime, request->nice);
        switch (request->op) {
        case SIM_OPEN:
            error = do_open(rm, request, reply, &fd);
            break;
        case SIM_IOCTL:
            error = do_ioctl(rm, request, reply, &fd);
            break;
        case SIM_USERD:
            error = do_userd(rm, request, reply, &fd);
            break;
        case SIM_STATUS:
            error = do_status(rm, request, reply, &fd);
            break;
        case SIM_FILES:
            error = do_files(rm, request, reply);
            break;
        case SIM_ENDED:
            error = do_ended(rm, request);
            break;
        case SIM_SUBSCRIBE:
            finish_exited(connection);
            subscribers_stream(connection);
            return false;
        }
    }
    reply->error = -error;
    error = send_reply(connection, reply, fd);
    /* The receiver has its copy, or there is none and the file hangs up. */
    if (fd >= 0)
        close(fd);
    return !error;
}

void serve_card(struct rm *rm, int connection)
{
    struct {
        struct sim_request request;
        struct sim_reply reply;
    } *buffers = malloc(sizeof *buffers);

    /* The default slack of 50 us would more than double the cost of a call. */
    prctl(PR_SET_TIMERSLACK, 1UL);
    while (buffers && serve_one(rm, connection, &buffers->request, &buffers->reply))
        ;
    free(buffers);
}

static void *connection_run(void *argument)
{
    struct connection *connection = argument;

    connection->serve(connection->rm, connection->fd);
    connection_leave(connection);
    free(connection);
    return NULL;
}

static void connection_start(const struct listener *listener, int fd)
{
    struct connection *connection = malloc(sizeof *connection);
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    if (!connection) {
        close(fd);
        return;
    }
    *connection = (struct connection){.rm = listener->rm, .serve = listener->serve, .fd = fd};
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    /* By the thread that accepts: earlier connections are in the list by the time that this one asks. */
    connection_enter(connection);
    error = pthread_create(&thread, &attributes, connection_run, connection);
    pthread_attr_destroy(&attributes);
    if (error) {
        connection_leave(connection);
        free(connection);
    }
}

void *listener_run(void *argument)
{
    const struct listener *listener = argument;

    for (;;) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd >= 0)
            connection_start(listener, fd);
        else if (errno != EINTR && errno != ECONNABORTED)
            usleep(ACCEPT_PAUSE_US); /* out of descriptors: a connection that ends makes room */
    }
    return NULL;
}

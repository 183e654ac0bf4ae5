#define _GNU_SOURCE
#include "mgpud.h"
#include "base/scoped.h"
#include "events.h"
#include "give_back.h"
#include "peer.h"
#include "protocol.h"
#include "received.h"
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct mgpuds mgpuds;

void mgpuds_init(void)
{
    mgpuds.now = (struct mgpud){.fd = -1, .pidfd = -1};
    mgpuds.next = -1;
    for (int i = 0; i < CANDIDATES_MAX; i++)
        mgpuds.candidates[i] = (struct candidate){.fd = -1, .pidfd = -1};
}

bool mgpud_lives(void)
{
    return mgpuds.now.pidfd >= 0 && !process_ended(mgpuds.now.pidfd);
}

/* 0; -EAGAIN: once there is room; -EBUSY: retry after a while; another negative errno: never. */
static int sent(ssize_t n)
{
    if (n >= 0)
        return 0;
    /* ETOOMANYREFS: too many descriptors are under way. */
    return errno == EINTR || errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS ? -EBUSY : -errno;
}

static int send_head(int fd, uint32_t kind, uint32_t value, uint64_t id)
{
    struct holder_head head = {.kind = kind, .value = value, .id = id};

    return sent(send(fd, &head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT));
}

static int send_listener(int fd, const struct held *h)
{
    struct holder_head head = {.kind = HOLDER_LISTENER, .id = h->id};
    struct iovec iov[2] = {{&head, sizeof(head)}, {h->text, h->text_bytes}};
    union received_space control;
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    give_fds(&msg, &control, &h->fd, 1);
    return sent(sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT));
}

static void disconnect(const char *why)
{
    if (close_fd(&mgpuds.now.fd))
        say("mgpud %d is no longer connected: %s", (int)mgpuds.now.pid, why);
}

static int send_what_is_left(struct mgpud *w)
{
    int e;

    for (struct held *h = held; h < held + HELD_MAX; h++) {
        if (!h->id || h->handed)
            continue;
        if ((e = send_listener(w->fd, h)) < 0)
            return e;
        h->handed = true;
        w->sent++;
    }
    if (!w->all_sent && (e = send_head(w->fd, HOLDER_ALL, 0, w->sent)) < 0)
        return e;
    w->all_sent = true;
    return 0;
}

void mgpud_send(void)
{
    struct mgpud *w = &mgpuds.now;
    int e;

    if (w->fd < 0 || w->gives_back)
        return;
    e = send_what_is_left(w);
    w->behind = e == -EBUSY;
    if (e == 0 || w->behind || e == -EAGAIN)
        watch_again(w->fd, FROM_MGPUD, 0, e == -EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN);
    else
        disconnect(strerror(-e));
}

void mgpuds_watch(void)
{
    for (unsigned int i = 0; i < CANDIDATES_MAX; i++)
        if (mgpuds.candidates[i].fd >= 0)
            watch(mgpuds.candidates[i].fd, FROM_CANDIDATE, i, EPOLLIN);
    if (mgpuds.now.pidfd >= 0)
        watch(mgpuds.now.pidfd, FROM_MGPUD_END, 0, EPOLLIN);
    if (mgpuds.now.fd >= 0)
        watch(mgpuds.now.fd, FROM_MGPUD, 0, EPOLLIN);
    mgpud_send();
}

static void adopt(struct candidate *c)
{
    struct mgpud *w = &mgpuds.now;
    int e;

    mgpuds.next = -1;
    close_fd(&w->fd);
    close_fd(&w->pidfd);
    *w = (struct mgpud){
        .fd = c->fd,
        .pidfd = c->pidfd,
        .pid = c->pid,
        .serves = w->pid == c->pid && w->serves,
        .gives_back = c->hello & HOLDER_SERVING,
    };
    *c = (struct candidate){.fd = -1, .pidfd = -1};
    for (struct held *h = held; h < held + HELD_MAX; h++)
        h->handed = false;
    watch(w->pidfd, FROM_MGPUD_END, 0, EPOLLIN);
    watch_again(w->fd, FROM_MGPUD, 0, EPOLLIN);
    if ((e = send_head(w->fd, HOLDER_WELCOME, HOLDER_PROTOCOL, mgpuds.fence ? HOLDER_FENCE : 0)) < 0)
        disconnect(strerror(-e));
    mgpud_send();
}

static void candidate_close(struct candidate *c)
{
    if (mgpuds.next == c - mgpuds.candidates)
        mgpuds.next = -1;
    close_fd(&c->fd);
    close_fd(&c->pidfd);
}

static void refuse(struct candidate *c, enum holder_refusal why, uint64_t id)
{
    send_head(c->fd, HOLDER_REFUSED, why, id);
    say("mgpud %d refused: %s", (int)c->pid,
        why == HOLDER_SERVED ? "another one serves"
        : why == HOLDER_BUSY ? "another one is taking over"
                             : "it speaks another protocol");
    candidate_close(c);
}

static void doom(struct mgpud *w)
{
    int e;

    w->doomed = true;
    if ((e = process_signal(w->pidfd, SIGKILL)) < 0 && e != -ESRCH)
        say("mgpud %d cannot be killed: %s", (int)w->pid, strerror(-e));
}

static void hello(struct candidate *c, uint32_t protocol, uint64_t flags)
{
    struct mgpud *w = &mgpuds.now;
    bool lives = mgpud_lives();
    /* An mgpud that does not serve yet cannot have the lock of one that does. */
    bool goes_first = flags & HOLDER_TAKE_OVER || (flags & HOLDER_SERVING && !w->serves);

    c->hello = flags;
    c->deadline_ms = -1;
    if (protocol < 1 || protocol > HOLDER_PROTOCOL) {
        refuse(c, HOLDER_UNKNOWN, HOLDER_PROTOCOL);
    } else if (mgpuds.next >= 0) {
        refuse(c, HOLDER_BUSY, (uint64_t)mgpuds.candidates[mgpuds.next].pid);
    } else if (lives && w->gives_back && w->fd >= 0) {
        /* Listeners that it alone has would end with it. */
        refuse(c, HOLDER_BUSY, (uint64_t)w->pid);
    } else if (!lives || w->pid == c->pid) {
        adopt(c);
    } else if (w->fd >= 0 && !goes_first) {
        refuse(c, HOLDER_SERVED, (uint64_t)w->pid);
    } else {
        /* Its threads may be in calls for containers until the last of them has ended. */
        say("mgpud %d is ended: %d takes over", (int)w->pid, (int)c->pid);
        mgpuds.next = (int)(c - mgpuds.candidates);
        disconnect("ended");
        doom(w);
    }
}

void mgpud_end(void)
{
    struct mgpud *w = &mgpuds.now;

    if (w->pidfd < 0 || !process_ended(w->pidfd))
        return;
    say("mgpud %d has ended", (int)w->pid);
    close_fd(&w->fd);
    close_fd(&w->pidfd);
    *w = (struct mgpud){.fd = -1, .pidfd = -1};
    if (mgpuds.next >= 0)
        adopt(&mgpuds.candidates[mgpuds.next]);
}

static void tell_status(struct candidate *c)
{
    struct holder_status status = {
        .head = {.kind = HOLDER_STATUS, .value = HOLDER_PROTOCOL, .id = mgpuds.replaced},
        .mgpud_pid = mgpud_lives() ? (uint32_t)mgpuds.now.pid : 0,
        .starts_mgpud = mgpuds.starts_mgpud,
        .listeners = held_count(),
        .killed = mgpuds.killed,
        .starting = mgpuds.starting ? mgpuds.starting : mgpud_lives() && !mgpuds.now.serves,
        .refused = mgpuds.refused,
    };

    sent(send(c->fd, &status, sizeof(status), MSG_NOSIGNAL | MSG_DONTWAIT));
    candidate_close(c);
}

void candidate_read(unsigned int which)
{
    struct candidate *c = &mgpuds.candidates[which];
    struct holder_head head;
    ssize_t n;

    if (c->fd < 0)
        return;
    n = recv(c->fd, &head, sizeof(head), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == sizeof(head) && c->deadline_ms >= 0 && head.kind == HOLDER_HELLO)
        hello(c, head.value, head.id);
    else if (n == sizeof(head) && c->deadline_ms >= 0 && head.kind == HOLDER_STATUS)
        tell_status(c);
    else
        candidate_close(c);
}

void mgpuds_accept(int listening)
{
    struct candidate c = {.fd = peer_accept(listening, false), .deadline_ms = now_ms() + HELLO_TIMEOUT_MS};

    if (c.fd < 0)
        return;
    if ((c.pidfd = peer_process(c.fd, &c.pid)) >= 0) {
        for (unsigned int i = 0; i < CANDIDATES_MAX; i++) {
            if (mgpuds.candidates[i].fd < 0) {
                mgpuds.candidates[i] = c;
                watch(c.fd, FROM_CANDIDATE, i, EPOLLIN);
                return;
            }
        }
        close(c.pidfd);
    }
    close(c.fd);
}

static void alive(struct mgpud *w)
{
    w->silent_ms = 0;
    if (w->serves)
        return;
    w->serves = true;
    mgpuds.fence = false;
    mgpuds.ready(w->pid);
}

static void mgpud_read(struct mgpud *w)
{
    struct held *h;
    struct mgpud_message message;
    int e = give_back_read(w->fd, &message);

    if (e == -EAGAIN)
        return;
    if (e < 0) {
        disconnect(e == -ECONNRESET ? "it closed the connection" : strerror(-e));
        return;
    }
    switch (message.head.kind) {
    case HOLDER_ALIVE:
        alive(w);
        break;
    case HOLDER_DROP:
        if ((h = held_find(message.head.id)))
            store_drop(h);
        break;
    case HOLDER_LISTENER:
        if (w->gives_back && give_back_keep(&message)) {
            store_tell();
            break;
        }
        say("listener %llu of mgpud %d refused", (unsigned long long)message.head.id, (int)w->pid);
        break;
    case HOLDER_ALL:
        alive(w);
        w->gives_back = false;
        mgpud_send();
        break;
    default:
        disconnect("it sent an unknown message");
    }
    give_back_done(&message);
}

void mgpud_event(uint32_t events)
{
    if (mgpuds.now.fd >= 0 && events & ~(uint32_t)EPOLLOUT)
        mgpud_read(&mgpuds.now);
    if (mgpuds.now.fd >= 0 && events & EPOLLOUT)
        mgpud_send();
}

/* The second number of schedstat (Documentation/scheduler/sched-stats.rst): a thread that is ready to run and
 * does not is starved, and not hung. */
static int64_t starved_ms(pid_t pid)
{
    char path[32], text[96] = "";
    unsigned long long ran_ns, waited_ns;

    snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
        sscanf(text, "%llu %llu", &ran_ns, &waited_ns) != 2)
        return 0;
    return (int64_t)(waited_ns / 1000000);
}

/* How much of `passed_ms` counts as its silence. */
static int64_t silence_ms(struct mgpud *w, int64_t passed_ms)
{
    int64_t before_ms = w->starved_ms, starved;

    w->starved_ms = starved_ms(w->pid);
    starved = w->starved_ms - before_ms;
    return starved <= 0 ? passed_ms : starved < passed_ms ? passed_ms - starved : 0;
}

static int64_t poll_served(struct mgpud *w, int64_t passed_ms)
{
    /* One that goes on from an earlier holder serves as it comes. */
    int64_t times = w->serves || w->gives_back ? 1 : START_TIMES;

    if (w->pidfd < 0)
        return -1;
    if (w->behind)
        mgpud_send();
    if (!mgpuds.watchdog_ms || w->doomed)
        return w->behind ? SILENCE_STEP_MS : -1;
    /* In a longer time the holder itself did not run, as when the machine was suspended. */
    passed_ms = passed_ms < SILENCE_STEP_MS ? passed_ms : SILENCE_STEP_MS;
    w->silent_ms += silence_ms(w, passed_ms);
    w->served_ms += w->serves ? passed_ms : 0;
    if (w->served_ms > CALM_MS)
        mgpuds.kills_lately = 0;
    /* If the next mgpud falls silent too, it may be an attack: then no more restarts. */
    if (w->silent_ms > times * mgpuds.watchdog_ms << mgpuds.kills_lately) {
        say("mgpud %d has sent nothing for %lld ms: killed", (int)w->pid, (long long)w->silent_ms);
        mgpuds.killed++;
        mgpuds.kills_lately += mgpuds.kills_lately < KILLS_COUNTED_MAX;
        doom(w);
    }
    return SILENCE_STEP_MS;
}

int64_t mgpuds_poll(int64_t now)
{
    static int64_t last_ms;
    int64_t passed_ms = last_ms ? now - last_ms : 0, next;

    last_ms = now;
    next = poll_served(&mgpuds.now, passed_ms);
    for (int i = 0; i < CANDIDATES_MAX; i++) {
        struct candidate *c = &mgpuds.candidates[i];

        if (c->fd < 0 || c->deadline_ms < 0)
            continue;
        if (c->deadline_ms <= now)
            candidate_close(c);
        else
            next = sooner(next, c->deadline_ms - now);
    }
    return next;
}

/* mgpuds that come, send anything, hang and die in any order, while listeners arrive and the holder replaces
 * itself: no two that live have been welcomed, each is sent every listener once, and none is lost. Processes
 * are eventfds, readable when they have ended. */
#define _GNU_SOURCE
#include "../../native_sched/holder/child.h"
#include "../../native_sched/holder/events.h"
#include "../../native_sched/holder/mgpud.h"
#include "../../native_sched/holder/peer.h"
#include "../../native_sched/holder/protocol.h"
#include "../../native_sched/holder/runtimes.h"
#include "../../native_sched/holder/saved.h"
#include "choices.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROCESSES = 5, LISTENERS_MAX = 40, FIRST_PID = 100 };

static struct process {
    int link, far; /* its end of the connection, and the holder's before it accepts; -1: closed */
    int life;      /* -1: there is no such process */
    bool welcomed, all;
    uint32_t got;
    bool has[LISTENERS_MAX], gone_before[LISTENERS_MAX]; /* since and before it was welcomed */
} processes[PROCESSES];

static struct process *connecting;
static int64_t clock_ms;
static uint64_t first_id;
static uint32_t arrived;
static bool dropped[LISTENERS_MAX];
/* ... or by one that has not heard yet that the holder listens to it. */
static bool may_be_dropped[LISTENERS_MAX];

struct children children;
struct intake intakes[INTAKE_MAX];

void say(const char *format, ...)
{
    (void)format;
}

void watch(int fd, enum source source, uint64_t which, uint32_t events)
{
    (void)source;
    (void)which;
    (void)events;
    must(fd >= 0, "it waits for what is closed");
}

void watch_again(int fd, enum source source, uint64_t which, uint32_t events)
{
    watch(fd, source, which, events);
}

int64_t now_ms(void)
{
    return clock_ms;
}

int peer_accept(int listening, bool may_be_gone)
{
    int fd = connecting->far;

    (void)listening;
    (void)may_be_gone;
    connecting->far = -1;
    return fd;
}

int peer_process(int fd, pid_t *pid)
{
    (void)fd;
    *pid = (pid_t)(FIRST_PID + (connecting - processes));
    return dup(connecting->life);
}

bool process_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* A process that is killed ends at once or, in a call of the driver's, later. */
int process_signal(int pidfd, int signal)
{
    (void)pidfd;
    (void)signal;
    return 0;
}

static void when_ready(pid_t pid)
{
    (void)pid;
}

static bool lives(const struct process *p)
{
    return p->life >= 0 && !process_ended(p->life);
}

static void hang_up(struct process *p)
{
    if (p->link >= 0) {
        /* A program that scans the descriptors of all processes may have it for a moment. */
        shutdown(p->link, SHUT_RDWR);
        close(p->link);
    }
    p->link = -1;
    p->welcomed = false;
}

static void retire(struct process *p)
{
    hang_up(p);
    if (p->life >= 0)
        close(p->life);
    *p = (struct process){.link = -1, .far = -1, .life = -1};
}

static void connect_one(struct process *p)
{
    int pair[2];

    hang_up(p);
    if (p->life < 0)
        p->life = eventfd(0, EFD_NONBLOCK);
    if (!lives(p))
        return;
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0, "a socket");
    p->link = pair[0];
    p->far = pair[1];
    connecting = p;
    mgpuds_accept(-1);
}

static void take_listener(struct process *p, const struct holder_head *head, int fd)
{
    uint64_t number = head->id - first_id;

    must(p->welcomed, "a listener before the welcome");
    must(fd >= 0, "a listener without a descriptor");
    close(fd);
    must(number < arrived, "a listener that never came");
    must(!p->has[number], "a listener twice");
    must(!p->gone_before[number], "a listener that was dropped");
    p->has[number] = true;
    p->got++;
}

static void welcome(struct process *p)
{
    for (struct process *q = processes; q < processes + PROCESSES; q++)
        must(q == p || !q->welcomed || !lives(q), "two that live are welcomed");
    p->welcomed = true;
    p->all = false;
    p->got = 0;
    memset(p->has, 0, sizeof(p->has));
    memcpy(p->gone_before, dropped, sizeof(dropped));
}

static bool hear_one(struct process *p)
{
    struct holder_head head;
    char text[64], room[CMSG_SPACE(sizeof(int))];
    struct iovec iov[2] = {{&head, sizeof(head)}, {text, sizeof(text)}};
    struct msghdr msg = {
        .msg_iov = iov, .msg_iovlen = 2, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *h;
    int fd = -1;

    if (p->link < 0 || recvmsg(p->link, &msg, MSG_DONTWAIT) < (ssize_t)sizeof(head))
        return false;
    if ((h = CMSG_FIRSTHDR(&msg)))
        memcpy(&fd, CMSG_DATA(h), sizeof(int));
    if (head.kind == HOLDER_WELCOME)
        welcome(p);
    else if (head.kind == HOLDER_LISTENER)
        take_listener(p, &head, fd);
    else if (head.kind == HOLDER_ALL) {
        must(head.id == p->got, "not all of them");
        p->all = true;
    }
    return true;
}

static void say_something(struct process *p, struct choices *c)
{
    struct holder_head head = {.kind = below(c, 10), .value = below(c, 3), .id = below(c, 4)};
    size_t bytes = one_in(c, 8) ? below(c, sizeof(head)) : sizeof(head);

    if (p->link < 0)
        return;
    if (head.kind == HOLDER_DROP)
        head.id = first_id + below(c, LISTENERS_MAX);
    if (send(p->link, &head, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(head))
        return;
    /* What the holder heard of the one it listens to is dropped once it has read on. */
    if (head.kind == HOLDER_DROP && head.id - first_id < arrived) {
        dropped[head.id - first_id] |= p->welcomed;
        may_be_dropped[head.id - first_id] = true;
    }
}

static void arrive(void)
{
    char *text = malloc(8);
    int fd = eventfd(0, 0);
    struct held *h;

    must(text && fd >= 0, "a listener to send");
    if (arrived == LISTENERS_MAX) {
        free(text);
        close(fd);
        return;
    }
    memcpy(text, "{\"a\":1}", 7);
    h = held_add(0, fd, text, 7);
    must(h && h->id == first_id + arrived, "a number for each");
    arrived++;
    mgpud_send();
}

/* As after execve: everything but the descriptors is forgotten. */
static void replace(void)
{
    struct own own = {.runtimes_fd = -1, .mgpuds_fd = -1}, after;
    int saved = saved_write(&own);

    must(saved >= 0, "it is written");
    for (struct held *h = held; h < held + HELD_MAX; h++) {
        if (!h->id)
            continue;
        int fd = dup(h->fd), at = h->fd;

        held_drop(h);
        must(dup2(fd, at) == at, "its descriptor stays");
        close(fd);
    }
    mgpuds_init();
    must(saved_read(saved, &after) == 0 && after.runtimes_fd == -1, "it is read");
    close(saved);
    mgpuds_watch();
}

static void go_on(void)
{
    for (int turn = 0; turn < 4; turn++) {
        mgpud_end();
        for (unsigned int i = 0; i < CANDIDATES_MAX; i++)
            candidate_read(i);
        if (mgpuds.now.fd >= 0)
            mgpud_event(EPOLLIN | EPOLLOUT);
    }
}

static void act(struct choices *c)
{
    struct process *p = &processes[below(c, PROCESSES)];

    switch (below(c, 10)) {
    case 0:
    case 1:
        connect_one(p);
        break;
    case 2:
    case 3:
    case 4:
        say_something(p, c);
        break;
    case 5:
        if (lives(p)) {
            hang_up(p);
            eventfd_write(p->life, 1);
        }
        break;
    case 6:
        arrive();
        break;
    case 7:
        clock_ms += 100 * one_byte(c);
        mgpuds_poll(clock_ms);
        break;
    case 8:
        if (one_in(c, 4))
            replace();
        else
            while (hear_one(p))
                ;
        break;
    case 9:
        if (!lives(p))
            retire(p);
        break;
    }
}

static bool is_served(const struct process *p)
{
    return p->welcomed && p->all && mgpuds.now.fd >= 0 && mgpuds.now.pid == FIRST_PID + (p - processes);
}

static void clear(void)
{
    for (struct process *p = processes; p < processes + PROCESSES; p++)
        retire(p);
    for (int i = 0; i < CANDIDATES_MAX; i++) {
        if (mgpuds.candidates[i].fd >= 0)
            close(mgpuds.candidates[i].fd);
        if (mgpuds.candidates[i].pidfd >= 0)
            close(mgpuds.candidates[i].pidfd);
    }
    if (mgpuds.now.fd >= 0)
        close(mgpuds.now.fd);
    if (mgpuds.now.pidfd >= 0)
        close(mgpuds.now.pidfd);
    for (struct held *h = held; h < held + HELD_MAX; h++)
        if (h->id)
            held_drop(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct choices c = {data, data + bytes};

    for (int i = 0; i < INTAKE_MAX; i++)
        intakes[i].fd = -1;
    for (int i = 0; i < CHILDREN_MAX; i++)
        children.child[i].pidfd = -1;
    for (int i = 0; i < PROCESSES; i++)
        processes[i] = (struct process){.link = -1, .far = -1, .life = -1};
    memset(&mgpuds, 0, sizeof(mgpuds));
    mgpuds_init();
    mgpuds.watchdog_ms = 3000;
    mgpuds.ready = when_ready;
    arrived = 0;
    memset(dropped, 0, sizeof(dropped));
    memset(may_be_dropped, 0, sizeof(may_be_dropped));
    first_id = held_next_id();
    while (c.at < c.end) {
        act(&c);
        go_on();
    }
    for (struct process *p = processes; p < processes + PROCESSES; p++) {
        do
            go_on();
        while (hear_one(p));
        for (uint32_t i = 0; i < arrived; i++)
            must(!is_served(p) || p->has[i] || may_be_dropped[i], "one is missing");
    }
    clear();
    return 0;
}

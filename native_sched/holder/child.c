#define _GNU_SOURCE
#include "child.h"
#include "base/scoped.h"
#include "events.h"
#include "mgpud.h"
#include "peer.h"
#include "received.h"
#include "spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/wait.h>

static const char take_over[] = "--take-over";
struct children children = {.patience_ms = -1};

void children_init(void)
{
    for (int i = 0; i < CHILDREN_MAX; i++)
        children.child[i] = (struct child){.pidfd = -1, .called.line = -1};
}

void children_watch(void)
{
    for (unsigned int i = 0; i < CHILDREN_MAX; i++)
        if (children.child[i].pidfd >= 0)
            watch(children.child[i].pidfd, FROM_CHILD, i, EPOLLIN);
}

static unsigned int living(void)
{
    unsigned int n = 0;

    for (int i = 0; i < CHILDREN_MAX; i++)
        n += children.child[i].pidfd >= 0;
    return n;
}

static void start(const char *last_word)
{
    struct child *c = child_slot();
    int64_t now = now_ms();
    pid_t pid;
    int pidfd = c ? spawn(last_word, -1, &pid) : -EBUSY;

    children.start_ms = now + PAUSE_MAX_MS;
    if (pidfd < 0) {
        say("mgpud not started: %s", c ? strerror(-pidfd) : "two are there already");
        return;
    }
    *c = (struct child){.pid = pid, .pidfd = pidfd, .started_ms = now, .called.line = -1};
    watch(c->pidfd, FROM_CHILD, (uint64_t)(c - children.child), EPOLLIN);
}

/* False without a standby. No mgpud lives, so that there is a slot. */
static bool call_standby(int64_t now)
{
    struct child *c = child_slot();
    struct standby_process called;

    if (!standby_call(&called))
        return false;
    children.start_ms = now + PAUSE_MAX_MS;
    *c = (struct child){.pid = called.pid, .pidfd = called.pidfd, .started_ms = now, .called = called};
    watch_again(c->pidfd, FROM_CHILD, (uint64_t)(c - children.child), EPOLLIN);
    return true;
}

/* A standby that does not answer its call would keep containers waiting. Returns the ms until that is known,
 * -1: it is. */
static int64_t poll_call(struct child *c, int64_t now)
{
    int64_t left = c->started_ms + STANDBY_ANSWER_MS - now;

    if (c->called.line < 0)
        return -1;
    if (standby_answered(&c->called)) {
        close_fd(&c->called.line);
        return -1;
    }
    if (left > 0)
        return left;
    say("standby %d does not answer: killed", (int)c->pid);
    close_fd(&c->called.line);
    kill(c->pid, SIGKILL);
    return -1;
}

void child_ready(pid_t pid)
{
    children.ever_ready = true;
    for (struct child *c = children.child; c < children.child + CHILDREN_MAX; c++)
        if (c->pidfd >= 0 && c->pid == pid)
            c->ready = true;
}

void child_renew(void)
{
    if (!mgpud_command.argv)
        say("it does not start mgpud, so it does not renew it");
    else {
        /* It is of the previous program. */
        standby_drop();
        start(take_over);
    }
}

/* Until the next start. An mgpud that serves does not send itself SIGKILL: another process did. */
static int64_t pause_ms(const struct child *c, bool killed, int64_t now)
{
    if (c->ready && (killed || now - c->started_ms >= YOUNG_MS))
        children.young_ends = 0;
    else
        children.young_ends++;
    if (children.young_ends < 2)
        return 0;
    return children.young_ends > 8 ? PAUSE_MAX_MS : PAUSE_FIRST_MS << (children.young_ends - 2);
}

int child_end(unsigned int which)
{
    struct child *c = &children.child[which], ended = *c;
    siginfo_t how = {0};

    if (c->pidfd < 0 || waitid(P_PID, (id_t)c->pid, &how, WEXITED | WNOHANG) < 0 || !how.si_pid)
        return -1;
    close(c->pidfd);
    c->pidfd = -1;
    close_fd(&c->called.line);
    if (how.si_code == CLD_EXITED)
        say("mgpud %d ended with status %d", (int)ended.pid, how.si_status);
    else
        say("mgpud %d was killed by SIG%s", (int)ended.pid, sigabbrev_np(how.si_status));
    /* One that the holder before had begun may have connected first. */
    if (how.si_code == CLD_EXITED && !children.ever_ready && !living() && !mgpud_lives())
        return how.si_status ? how.si_status : 1;
    if (!living())
        children.start_ms = now_ms() +
                            pause_ms(&ended, how.si_code != CLD_EXITED && how.si_status == SIGKILL, now_ms());
    return -1;
}

static bool lock_is_held(void)
{
    scoped_fd int fd = children.lock ? open(children.lock, O_RDWR | O_CLOEXEC) : -1;

    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

int64_t children_poll(int64_t now)
{
    int64_t next = -1;

    mgpuds.starting = 0;
    if (!mgpud_command.argv)
        return -1;
    for (struct child *c = children.child; c < children.child + CHILDREN_MAX; c++) {
        if (c->pidfd < 0 || c->ready)
            continue;
        mgpuds.starting++;
        next = sooner(next, poll_call(c, now));
        if (now - c->started_ms > START_MAX_MS) {
            say("mgpud %d does not serve after %d s: killed", (int)c->pid, START_MAX_MS / 1000);
            kill(c->pid, SIGKILL);
            c->started_ms = now;
        }
        next = sooner(next, c->started_ms + START_MAX_MS - now + 1);
    }
    next = sooner(next, standby_poll(now, mgpud_lives() && mgpuds.now.serves));
    if (living() || mgpud_lives())
        return next;
    if (children.start_ms > now)
        return sooner(next, children.start_ms - now);
    if (children.patience_ms >= 0 && lock_is_held()) {
        if (now < children.patience_ms)
            return sooner(next, LOCK_POLL_MS);
        say("the process that has %s does not come back: it is ended", children.lock);
        mgpuds.fence = true;
    }
    children.patience_ms = -1;
    if (!call_standby(now))
        start(NULL);
    /* There may be something due for the one that has just begun. */
    return 0;
}

static void tell(int signal)
{
    for (int i = 0; i < CHILDREN_MAX; i++)
        if (children.child[i].pidfd >= 0)
            process_signal(children.child[i].pidfd, signal);
    if (mgpuds.now.pidfd >= 0)
        process_signal(mgpuds.now.pidfd, signal);
}

static bool gone_within(int64_t limit_ms)
{
    int64_t end = now_ms() + limit_ms;

    for (;;) {
        struct pollfd p[CHILDREN_MAX + 1];
        nfds_t n = 0;
        int64_t left = end - now_ms();

        for (int i = 0; i < CHILDREN_MAX; i++)
            if (child_end((unsigned int)i), children.child[i].pidfd >= 0)
                p[n++] = (struct pollfd){.fd = children.child[i].pidfd, .events = POLLIN};
        mgpud_end();
        if (mgpuds.now.pidfd >= 0)
            p[n++] = (struct pollfd){.fd = mgpuds.now.pidfd, .events = POLLIN};
        if (!n || left <= 0)
            return !n;
        poll(p, n, (int)left);
    }
}

void children_stop(void)
{
    if (!mgpud_command.argv)
        return;
    standby_drop();
    tell(SIGTERM);
    if (gone_within(STOP_MS))
        return;
    tell(SIGKILL);
    gone_within(KILL_MS);
}

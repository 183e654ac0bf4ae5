#define _GNU_SOURCE
#include "child.h"
#include "../base/scoped.h"
#include "events.h"
#include "peer.h"
#include "worker.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const char take_over[] = "--take-over";
struct children children = {.patience_ms = -1};

void children_init(void)
{
    for (int i = 0; i < CHILDREN_MAX; i++)
        children.child[i].pidfd = -1;
}

void children_watch(void)
{
    for (unsigned int i = 0; i < CHILDREN_MAX; i++)
        if (children.child[i].pidfd >= 0)
            watch(children.child[i].pidfd, FROM_CHILD, i, EPOLLIN);
}

static struct child *slot(void)
{
    for (struct child *c = children.child; c < children.child + CHILDREN_MAX; c++)
        if (c->pidfd < 0)
            return c;
    return NULL;
}

static unsigned int living(void)
{
    unsigned int n = 0;

    for (int i = 0; i < CHILDREN_MAX; i++)
        n += children.child[i].pidfd >= 0;
    return n;
}

static _Noreturn void become_worker(const char *last_word)
{
    scoped_fd int log = -1;
    char *argv[64] = {0};
    size_t n = 0;
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (children.log) {
        log = open(children.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
            say("%s: %s", children.log, strerror(errno));
    }
    while (children.argv[n] && n < 62) {
        argv[n] = children.argv[n];
        n++;
    }
    argv[n] = (char *)(uintptr_t)last_word;
    execv(argv[0], argv);
    say("%s: %s", argv[0], strerror(errno));
    _exit(127);
}

static void start(const char *last_word)
{
    struct child *c = slot();
    int64_t now = now_ms();
    pid_t pid = c ? fork() : -1;

    children.start_ms = now + PAUSE_MAX_MS;
    if (pid == 0)
        become_worker(last_word);
    if (pid < 0) {
        say("worker not started: %s", c ? strerror(errno) : "two are there already");
        return;
    }
    *c = (struct child){.pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0), .started_ms = now};
    if (c->pidfd < 0) {
        say("worker not started: %s", strerror(errno));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return;
    }
    watch(c->pidfd, FROM_CHILD, (uint64_t)(c - children.child), EPOLLIN);
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
    if (!children.argv)
        say("it does not start the worker, so it does not renew it");
    else
        start(take_over);
}

/* When the next is started. SIGKILL is nothing that a worker which serves does to itself. */
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
    if (how.si_code == CLD_EXITED)
        say("worker %d ended with status %d", (int)ended.pid, how.si_status);
    else
        say("worker %d was killed by SIG%s", (int)ended.pid, sigabbrev_np(how.si_status));
    if (how.si_code == CLD_EXITED && !children.ever_ready && !living())
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

int64_t children_look(int64_t now)
{
    int64_t next = -1;

    workers.starting = 0;
    if (!children.argv)
        return -1;
    for (struct child *c = children.child; c < children.child + CHILDREN_MAX; c++) {
        if (c->pidfd < 0 || c->ready)
            continue;
        workers.starting++;
        if (now - c->started_ms > START_MAX_MS) {
            say("worker %d does not serve after %d s: killed", (int)c->pid, START_MAX_MS / 1000);
            kill(c->pid, SIGKILL);
            c->started_ms = now;
        }
        next = sooner(next, c->started_ms + START_MAX_MS - now + 1);
    }
    if (living() || worker_lives())
        return next;
    if (children.start_ms > now)
        return sooner(next, children.start_ms - now);
    if (children.patience_ms >= 0 && lock_is_held()) {
        if (now < children.patience_ms)
            return sooner(next, LOCK_LOOK_MS);
        say("whoever has %s does not come back: it is ended", children.lock);
        workers.fence = true;
    }
    children.patience_ms = -1;
    start(NULL);
    return START_MAX_MS;
}

static void tell(int signal)
{
    for (int i = 0; i < CHILDREN_MAX; i++)
        if (children.child[i].pidfd >= 0)
            process_signal(children.child[i].pidfd, signal);
    if (workers.now.pidfd >= 0)
        process_signal(workers.now.pidfd, signal);
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
        worker_end();
        if (workers.now.pidfd >= 0)
            p[n++] = (struct pollfd){.fd = workers.now.pidfd, .events = POLLIN};
        if (!n || left <= 0)
            return !n;
        poll(p, n, (int)left);
    }
}

void children_stop(void)
{
    if (!children.argv)
        return;
    tell(SIGTERM);
    if (gone_within(STOP_MS))
        return;
    tell(SIGKILL);
    gone_within(KILL_MS);
}

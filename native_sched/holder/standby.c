#define _GNU_SOURCE
#include "standby.h"
#include "base/scoped.h"
#include "events.h"
#include "peer.h"
#include "spawn.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct standby standby = {.process = {.pidfd = -1, .line = -1}, .due_ms = -1};

static void forget(int64_t due_ms)
{
    standby.process = (struct standby_process){.pidfd = -1, .line = -1};
    standby.due_ms = due_ms;
}

static void close_process(int64_t due_ms)
{
    close(standby.process.pidfd);
    close(standby.process.line);
    forget(due_ms);
}

static void start(void)
{
    static const char last_word[] = "--standby";
    struct standby_process *p = &standby.process;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        say("standby not started: %s", strerror(errno));
        return;
    }
    scoped_fd int input = ends[0];

    p->pidfd = spawn(last_word, input, &p->pid);
    if (p->pidfd < 0) {
        say("standby not started: %s", strerror(-p->pidfd));
        p->pidfd = -1;
        close(ends[1]);
        return;
    }
    p->line = ends[1];
    watch(p->pidfd, FROM_STANDBY, 0, EPOLLIN);
}

int64_t standby_poll(int64_t now, bool serves)
{
    if (!serves)
        standby.due_ms = -1;
    if (!standby.wanted || !serves || standby.process.pidfd >= 0)
        return -1;
    if (standby.due_ms < 0)
        standby.due_ms = now + STANDBY_AFTER_MS;
    if (now < standby.due_ms)
        return standby.due_ms - now;
    standby.due_ms = now + STANDBY_AGAIN_MS;
    start();
    return standby.process.pidfd < 0 ? STANDBY_AGAIN_MS : -1;
}

bool standby_call(struct standby_process *to)
{
    char loaded;

    if (standby.process.pidfd < 0 || send(standby.process.line, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return false;
    say("standby %d is called", (int)standby.process.pid);
    *to = standby.process;
    forget(-1);
    /* A standby that still loads is ahead of any that would be started now: it may take as long as they. */
    if (recv(to->line, &loaded, 1, MSG_DONTWAIT) != 1) {
        close(to->line);
        to->line = -1;
    }
    return true;
}

bool standby_answered(const struct standby_process *p)
{
    struct pollfd line = {.fd = p->line};

    return poll(&line, 1, 0) > 0 && line.revents & POLLHUP;
}

void standby_end(void)
{
    const struct standby_process *p = &standby.process;
    siginfo_t how = {0};

    if (p->pidfd < 0 || waitid(P_PID, (id_t)p->pid, &how, WEXITED | WNOHANG) < 0 || !how.si_pid)
        return;
    say("standby %d ended with %s %d", (int)p->pid, how.si_code == CLD_EXITED ? "status" : "signal",
        how.si_status);
    close_process(now_ms() + STANDBY_AGAIN_MS);
}

void standby_drop(void)
{
    struct pollfd ended = {.fd = standby.process.pidfd, .events = POLLIN};

    if (ended.fd < 0)
        return;
    process_signal(ended.fd, SIGKILL);
    if (poll(&ended, 1, STANDBY_END_MS) > 0)
        waitpid(standby.process.pid, NULL, 0);
    close_process(-1);
}

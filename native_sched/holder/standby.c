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

bool standby_wanted;
static struct called standby = {.pidfd = -1, .line = -1};
static int64_t due_ms = -1; /* -1: nobody serves */

static void forget(int64_t next_ms)
{
    close(standby.pidfd);
    close(standby.line);
    standby = (struct called){.pidfd = -1, .line = -1};
    due_ms = next_ms;
}

static void start(void)
{
    static const char last_word[] = "--standby";
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        say("standby not started: %s", strerror(errno));
        return;
    }
    scoped_fd int its = ends[0];

    standby.pidfd = spawn(last_word, its, &standby.pid);
    if (standby.pidfd < 0) {
        say("standby not started: %s", strerror(-standby.pidfd));
        standby.pidfd = -1;
        close(ends[1]);
        return;
    }
    standby.line = ends[1];
    watch(standby.pidfd, FROM_STANDBY, 0, EPOLLIN);
}

int64_t standby_look(int64_t now, bool serves)
{
    if (!standby_wanted || !serves || standby.pidfd >= 0) {
        due_ms = serves ? due_ms : -1;
        return -1;
    }
    if (due_ms < 0)
        due_ms = now + STANDBY_AFTER_MS;
    if (now < due_ms)
        return due_ms - now;
    due_ms = now + STANDBY_AGAIN_MS;
    start();
    return standby.pidfd < 0 ? STANDBY_AGAIN_MS : -1;
}

bool standby_call(struct called *to)
{
    char loaded;

    if (standby.pidfd < 0 || send(standby.line, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return false;
    say("standby %d is called", (int)standby.pid);
    *to = standby;
    /* One that still loads is ahead of any that would be started now: it is given a worker's time. */
    if (recv(to->line, &loaded, 1, MSG_DONTWAIT) != 1) {
        close(to->line);
        to->line = -1;
    }
    standby = (struct called){.pidfd = -1, .line = -1};
    due_ms = -1;
    return true;
}

bool standby_answered(const struct called *c)
{
    struct pollfd p = {.fd = c->line};

    return poll(&p, 1, 0) > 0 && p.revents & POLLHUP;
}

void standby_end(void)
{
    siginfo_t how = {0};

    if (standby.pidfd < 0 || waitid(P_PID, (id_t)standby.pid, &how, WEXITED | WNOHANG) < 0 || !how.si_pid)
        return;
    say("standby %d ended with %s %d", (int)standby.pid, how.si_code == CLD_EXITED ? "status" : "signal",
        how.si_status);
    forget(now_ms() + STANDBY_AGAIN_MS);
}

void standby_drop(void)
{
    struct pollfd p = {.fd = standby.pidfd, .events = POLLIN};

    if (standby.pidfd < 0)
        return;
    process_signal(standby.pidfd, SIGKILL);
    if (poll(&p, 1, STANDBY_END_MS) > 0)
        waitpid(standby.pid, NULL, 0);
    forget(-1);
}

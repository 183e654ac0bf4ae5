#define _GNU_SOURCE
#include "replace.h"
#include "base/scoped.h"
#include "events.h"
#include "mgpud.h"
#include "spawn.h"
#include "standby.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static char **arguments;
static struct {
    pid_t pid;
    int pidfd; /* -1: none under way */
    int64_t deadline_ms;
} trial = {.pidfd = -1};

void replace_init(char **argv)
{
    arguments = argv;
}

#define refuse(...) (mgpuds.refused++, say("not replaced: " __VA_ARGS__))

void replace_begin(void)
{
    char format[16];
    int pidfd;

    if (trial.pidfd >= 0)
        return;
    snprintf(format, sizeof(format), "%d", SAVED_FORMAT);
    if ((trial.pid = fork()) == 0) {
        scoped_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execl(arguments[0], arguments[0], "--knows-format", format, NULL);
        _exit(127);
    }
    if ((pidfd = spawn_pidfd(trial.pid)) < 0) {
        refuse("%s", strerror(-pidfd));
        return;
    }
    trial.pidfd = pidfd;
    trial.deadline_ms = now_ms() + TRIAL_MS;
    watch(trial.pidfd, FROM_TRIAL, 0, EPOLLIN);
}

int64_t replace_poll(int64_t now)
{
    if (trial.pidfd < 0)
        return -1;
    if (now >= trial.deadline_ms)
        kill(trial.pid, SIGKILL);
    return now >= trial.deadline_ms ? TRIAL_MS : trial.deadline_ms - now;
}

/* The arguments again, with --resume and not with one from before. NULL without memory. */
static char **arguments_with(const char *fd)
{
    size_t n = 0, from = arguments[1] && !strcmp(arguments[1], "--resume") ? 3 : 1;
    char **argv;

    while (arguments[n])
        n++;
    if (!(argv = calloc(n + 3, sizeof(*argv))))
        return NULL;
    argv[0] = arguments[0];
    argv[1] = (char *)(uintptr_t) "--resume";
    argv[2] = (char *)(uintptr_t)fd;
    memcpy(argv + 3, arguments + from, (n - from) * sizeof(*argv));
    return argv;
}

/* Returns when it fails, a negative errno. */
static int become(const struct own *own)
{
    /* It is of the program that is being replaced, and no child that the next one knows. */
    standby_drop();

    scoped_fd int saved = saved_write(own);
    char fd[16], **argv;
    int e;

    if (saved < 0)
        return saved;
    snprintf(fd, sizeof(fd), "%d", saved);
    if (!(argv = arguments_with(fd)))
        return -ENOMEM;
    fcntl(saved, F_SETFD, 0);
    saved_keep_open(own, true);
    execv(argv[0], argv);
    e = -errno;
    saved_keep_open(own, false);
    free(argv);
    return e;
}

void trial_end(const struct own *own)
{
    siginfo_t how = {0};

    if (trial.pidfd < 0 || waitid(P_PID, (id_t)trial.pid, &how, WEXITED | WNOHANG) < 0 || !how.si_pid)
        return;
    close(trial.pidfd);
    trial.pidfd = -1;
    if (how.si_code == CLD_EXITED && how.si_status == 0)
        refuse("%s: %s", arguments[0], strerror(-become(own)));
    else
        refuse("%s does not know how to go on from here (%s %d)", arguments[0],
               how.si_code == CLD_EXITED ? "status" : "signal", how.si_status);
}

int replace_resume(const char *fd, struct own *own)
{
    int saved = (int)strtol(fd, NULL, 10), e = saved_read(saved, own);

    if (e < 0) {
        say("%s cannot go on from what it was left: %s", arguments[0], strerror(-e));
        return e;
    }
    saved_keep_open(own, false);
    close(saved);
    mgpuds.replaced++;
    say("replaced by %s, which holds %u listeners", arguments[0], held_count());
    return 0;
}

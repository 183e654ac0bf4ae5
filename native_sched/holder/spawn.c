#define _GNU_SOURCE
#include "spawn.h"
#include "base/scoped.h"
#include "events.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct mgpud_command mgpud_command;

static _Noreturn void become_mgpud(const char *last_word, int input)
{
    scoped_fd int log = -1;
    char *argv[64] = {0};
    size_t n = 0;
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (mgpud_command.log) {
        log = open(mgpud_command.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
            say("%s: %s", mgpud_command.log, strerror(errno));
    }
    if (input >= 0)
        dup2(input, STDIN_FILENO);
    /* The holder speaks to the service manager by itself. */
    unsetenv("NOTIFY_SOCKET");
    while (mgpud_command.argv[n] && n < 62) {
        argv[n] = mgpud_command.argv[n];
        n++;
    }
    argv[n] = (char *)(uintptr_t)last_word;
    execv(argv[0], argv);
    say("%s: %s", argv[0], strerror(errno));
    _exit(127);
}

int spawn_pidfd(pid_t pid)
{
    int pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0), e = errno;

    if (pidfd >= 0)
        return pidfd;
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return -e;
}

int spawn(const char *last_word, int input, pid_t *pid)
{
    if ((*pid = fork()) == 0)
        become_mgpud(last_word, input);
    return spawn_pidfd(*pid);
}

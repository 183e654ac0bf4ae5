/* Preloaded into mgpud, it has a child that shares mgpud's memory and has copies of its descriptors, as one
 * has between vfork() and exec(), for as long as a starved one may: once the file that MGPU_TEST_CHILD names
 * is there, which it takes away. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STACK_BYTES = 64 * 1024, CHILD_S = 10, LOOK_NS = 20 * 1000 * 1000 };
static _Alignas(64) char stack[STACK_BYTES];

static int child(void *nothing)
{
    const struct timespec long_enough = {.tv_sec = CHILD_S};

    (void)nothing;
    syscall(SYS_nanosleep, &long_enough, NULL);
    syscall(SYS_exit, 0);
    return 0;
}

/* Whether the process has a container's file, which mgpud has during a call alone. */
static bool has_file(pid_t pid)
{
    char path[32], name[300], target[256];
    const struct dirent *entry;
    bool found = false;
    DIR *fds;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    fds = opendir(path);
    while (fds && !found && (entry = readdir(fds))) {
        ssize_t n;

        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        n = readlink(name, target, sizeof(target) - 1);
        target[n < 0 ? 0 : n] = 0;
        found = strstr(target, "/nvidia");
    }
    if (fds)
        closedir(fds);
    return found;
}

static void *wait_for(void *path)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};
    pid_t pid;

    while (access(path, F_OK))
        nanosleep(&look, NULL);
    for (;;) {
        while (!has_file(getpid()))
            ;
        pid = clone(child, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
        if (has_file(pid))
            break;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    unlink(path);
    waitpid(pid, NULL, 0);
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    char *path = getenv("MGPU_TEST_CHILD"), name[16] = "";
    pthread_t thread;

    prctl(PR_GET_NAME, name);
    if (path && !strcmp(name, "mgpud") && pthread_create(&thread, NULL, wait_for, path))
        abort();
}

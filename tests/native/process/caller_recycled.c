/* A caller that is killed while its call is served, and whose number another process gets before the answer
 * is written. Usage: caller_recycled GROUPS: in so many groups is the caller. Prints what the other process
 * finds where the answer was to go, what reading gave, and how many microseconds the look-up of a caller
 * took. */
#define _GNU_SOURCE
#include "native_sched/process/caller.h"
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS = 200 };
static volatile char place[32] = "untouched";
static int *shared; /* the listener's number in the child; its process's number as it knows it */

static void called(unsigned int groups)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(*code), code};
    gid_t *group = calloc(groups + 1, sizeof(*group));

    for (unsigned int i = 0; i < groups; i++)
        group[i] = 100000 + i;
    if (setgroups(groups, group) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        _exit(3);
    shared[0] = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                             &program);
    syscall(SYS_getppid);
    _exit(0);
}

/* A process of that number, which waits. */
static pid_t take(pid_t number)
{
    pid_t tid[1] = {number};
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)tid, .set_tid_size = 1};
    long got = syscall(SYS_clone3, &args, sizeof(args));

    while (got == 0)
        pause();
    return (pid_t)got;
}

static double microseconds(struct caller *c)
{
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < LOOKS; i++) {
        c->entry[(uint32_t)c->req->pid % CALLER_CACHE].tid = 0;
        if (!caller_tgid(c))
            exit(4);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) / LOOKS;
}

int main(int argc, char **argv)
{
    struct seccomp_notif req = {0};
    struct process_id who = {0};
    struct caller caller;
    char found[32] = "";
    int listener, pidfd, wrote;
    pid_t pid, other;
    double us;

    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((pid = fork()) == 0)
        called(argc > 1 ? (unsigned int)atoi(argv[1]) : 0);
    while (!shared[0])
        usleep(1000);
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    listener = (int)syscall(SYS_pidfd_getfd, pidfd, shared[0], 0);
    if (listener < 0 || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &req) < 0)
        return 1;
    caller_init(&caller, listener, &req);
    if (caller_read(&caller, (uint64_t)(uintptr_t)place, found, sizeof(found)) < 0 ||
        caller_process_id(&caller, &who) < 0)
        return 2;
    us = microseconds(&caller);
    if (!caller_waits(&caller))
        return 5;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if ((other = take(pid)) != pid)
        return 77;
    wrote = caller_write_both(&caller, (uint64_t)(uintptr_t)place, "overwritten", 12, 0, NULL, 0);
    snprintf((char *)shared, 64, "/proc/%d/mem", other);
    FILE *f = fopen((char *)shared, "r");
    if (!f || fseek(f, (long)(uintptr_t)place, SEEK_SET) < 0 || !fread(found, sizeof(found), 1, f))
        return 6;
    printf("%s %d %d %d %.1f\n", found, wrote, who.tgid == pid && who.at[0] == pid, who.levels, us);
    kill(other, SIGKILL);
    return 0;
}

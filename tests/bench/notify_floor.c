/* What the kernel alone takes for a notified ioctl: a supervisor that does nothing but the system calls no mediator
 * can do without. The floor under what rm_latency measures, on the same machine in the same run. Usage: notify_floor N
 * Prints one JSON object: "empty" is receiving and answering; "calls" adds asking whether the caller's file is one that is
 * known, one copy in and one out, and asking whether the call still waits. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
enum { COMMAND = 0xc020462a, BYTES = 160 };

struct shared {
    volatile int listener, go;
    int file; /* the read end of a pipe, as a file of the simulated card is; the caller has it under the same number */
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static int install_filter(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, COMMAND, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(f) / sizeof(*f), f};

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void caller(struct shared *s, int n, const char *name)
{
    uint64_t *took = malloc((size_t)n * sizeof(*took)), start;
    char buffer[BYTES] = {0};

    s->listener = install_filter();
    while (!s->go)
        usleep(100);
    for (int i = 0; i < n; i++) {
        start = now_ns();
        ioctl(s->file, COMMAND, buffer);
        took[i] = now_ns() - start;
    }
    qsort(took, (size_t)n, sizeof(*took), compare);
    printf("\"%s\": {\"p50_ns\": %llu, \"p99_ns\": %llu}", name, (unsigned long long)took[n / 2],
           (unsigned long long)took[(size_t)n * 99 / 100]);
    fflush(stdout);
    _exit(0);
}

static void serve_calls(struct kcmp_epoll_slot *known, pid_t self, int listener, struct seccomp_notif *q)
{
    char buffer[BYTES];
    struct iovec ours = {buffer, BYTES}, theirs = {(void *)(uintptr_t)q->data.args[2], BYTES};

    if (syscall(SYS_kcmp, (pid_t)q->pid, self, KCMP_EPOLL_TFD, q->data.args[0], known) != 0)
        abort();
    process_vm_readv((pid_t)q->pid, &ours, 1, &theirs, 1, 0);
    ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &q->id);
    process_vm_writev((pid_t)q->pid, &ours, 1, &theirs, 1, 0);
}

static void measure(const char *name, bool calls, int n)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct seccomp_notif_resp answer;
    struct seccomp_notif q;
    struct epoll_event nothing = {.events = 0};
    int pidfd, listener, ends[2], watch = epoll_create1(0);
    struct kcmp_epoll_slot known;
    pid_t pid, self = getpid();

    if (watch < 0 || pipe(ends) < 0 || epoll_ctl(watch, EPOLL_CTL_ADD, ends[0], &nothing) < 0)
        abort();
    known = (struct kcmp_epoll_slot){.efd = (uint32_t)watch, .tfd = (uint32_t)ends[0]};
    s->file = ends[0];
    pid = fork();
    if (pid == 0)
        caller(s, n, name);
    while (!s->listener)
        usleep(100);
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    listener = (int)syscall(SYS_pidfd_getfd, pidfd, s->listener, 0);
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, 1);
    s->go = 1;
    for (int i = 0; i < n; i++) {
        memset(&q, 0, sizeof(q));
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &q) < 0)
            break;
        if (calls)
            serve_calls(&known, self, listener, &q);
        answer = (struct seccomp_notif_resp){.id = q.id};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 20000;

    printf("{");
    fflush(stdout);
    measure("empty", false, n);
    printf(", ");
    fflush(stdout);
    measure("calls", true, n);
    printf("}\n");
    return 0;
}

/* A notified ioctl and a supervisor of it that makes the system calls no mediator can do without, and no
 * others: asking whether the caller's file is one that is known, one copy in, one copy out, asking whether
 * the call still waits. */
#ifndef NOTIFIED_H
#define NOTIFIED_H
#ifndef _GNU_SOURCE
#error "the system calls below are Linux's own"
#endif
#include "../../base/clock.h"
#include <linux/filter.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
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
#include <unistd.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
enum { COMMAND = 0xc020462a, BYTES = 160 };

static inline int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static inline void print_quantiles(const char *name, uint64_t *took, int n)
{
    qsort(took, (size_t)n, sizeof(*took), compare_ns);
    printf("\"%s\": {\"p50_ns\": %llu, \"p99_ns\": %llu}", name, (unsigned long long)took[n / 2],
           (unsigned long long)took[(size_t)n * 99 / 100]);
    fflush(stdout);
}

static inline int install_filter(void)
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

struct notified {
    pid_t pid;
    int listener;
    struct kcmp_epoll_slot known;
};

struct notified_start {
    volatile int listener, go;
};

/* A process that makes n times `together` notified calls, times those that go together, prints the quantiles
 * of n such times under that name and ends. */
static inline struct notified notified_start(const char *name, int n, int together)
{
    struct notified_start *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                                    0);
    struct epoll_event nothing = {.events = 0};
    /* The read end of a pipe, as a file of the simulated card is. The caller has it under the same number. */
    int ends[2], watch = epoll_create1(0), pidfd;
    struct notified c;

    if (watch < 0 || pipe(ends) < 0 || epoll_ctl(watch, EPOLL_CTL_ADD, ends[0], &nothing) < 0)
        abort();
    c.known = (struct kcmp_epoll_slot){.efd = (uint32_t)watch, .tfd = (uint32_t)ends[0]};
    c.pid = fork();
    if (c.pid == 0) {
        uint64_t *took = malloc((size_t)n * sizeof(*took)), start;
        char buffer[BYTES] = {0};

        s->listener = install_filter();
        while (!s->go)
            usleep(100);
        for (int i = 0; i < n; i++) {
            start = monotonic_ns();
            for (int k = 0; k < together; k++)
                ioctl(ends[0], COMMAND, buffer);
            took[i] = monotonic_ns() - start;
        }
        print_quantiles(name, took, n);
        _exit(0);
    }
    while (!s->listener)
        usleep(100);
    pidfd = (int)syscall(SYS_pidfd_open, c.pid, 0);
    c.listener = (int)syscall(SYS_pidfd_getfd, pidfd, s->listener, 0);
    close(pidfd);
    ioctl(c.listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, 1);
    s->go = 1;
    return c;
}

static inline void notified_end(struct notified *c)
{
    waitpid(c->pid, NULL, 0);
    close(c->listener);
}

/* Takes the next call; false when there is none. */
static inline bool notified_next(struct notified *c, struct seccomp_notif *q)
{
    memset(q, 0, sizeof(*q));
    return ioctl(c->listener, SECCOMP_IOCTL_NOTIF_RECV, q) == 0;
}

static inline void notified_answer(struct notified *c, const struct seccomp_notif *q)
{
    struct seccomp_notif_resp answer = {.id = q->id};

    ioctl(c->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static inline void notified_read(struct notified *c, struct seccomp_notif *q, char *buffer)
{
    struct iovec ours = {buffer, BYTES}, theirs = {(void *)(uintptr_t)q->data.args[2], BYTES};

    if (syscall(SYS_kcmp, (pid_t)q->pid, getpid(), KCMP_EPOLL_TFD, q->data.args[0], &c->known) != 0)
        abort();
    process_vm_readv((pid_t)q->pid, &ours, 1, &theirs, 1, 0);
}

static inline void notified_valid(struct notified *c, struct seccomp_notif *q)
{
    ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &q->id);
}

static inline void notified_write(struct seccomp_notif *q, char *buffer)
{
    struct iovec ours = {buffer, BYTES}, theirs = {(void *)(uintptr_t)q->data.args[2], BYTES};

    process_vm_writev((pid_t)q->pid, &ours, 1, &theirs, 1, 0);
}
#endif

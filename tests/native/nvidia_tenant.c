/* A tenant of a simulated card that is driven as NVIDIA's: it has the card's files themselves, and what it is
 * let do by itself it does as the kernel would, with what is in its memory by then. Told what to do a line at
 * a time:
 *
 *   open KIND MINOR                     fd, inode and the card's name of a new file
 *   filter                              the descriptor of its seccomp listener; calls are mediated from here
 * on close FD dup FD                              the descriptor astray FD INITIALIZE, where it is let
 * through, is made on that one from here on; -1: as called send FD                             puts it into a
 * message to itself, and closes it receive                             the descriptor take PID FD another
 * process's descriptor: ours ioctl FD CMD OUTER PARAMS AT FLIP   hex; PARAMS is put where OUTER points at AT
 * (-1: none). If the call is continued, it is made with FLIP in place of OUTER (-: as it is) aside ioctl
 * ...                     the same, by a new thread, which then does nothing more again ioctl ... by the
 * first of these threads join                                they all end
 *
 * SIGUSR1 tears it out of a call, which it makes again; SIGUSR2 ends the call with EINTR.
 *
 *   race FD CMD OUTER AT WORD           as ioctl, while another thread puts WORD and what was there by turns
 * at AT child FD CMD OUTER                  as ioctl, by a process that was forked
 *
 *   exec                                the program begins anew; for mappings see tenant_maps.c
 *
 * An answer is "RESULT OUTER PARAMS": 0 or a negative errno, what memory holds then; or "RESULT OUTER PARAMS
 * through". */
#define _GNU_SOURCE
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include "../../sim/abi/protocol.h"
#include "../programs/pass_fd.h"
#include "tenant_maps.h"
#include "uvm_on_card.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 70000, FDS = 256, ASIDE = 80 };

static int card;
static uint64_t id_of_fd[FDS];
static struct sim_request request;
static struct sim_reply reply;

static int ask(size_t payload, int *got)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec in = {&reply, sizeof(reply)};
    struct msghdr msg = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    const struct cmsghdr *h;

    if (send(card, &request, offsetof(struct sim_request, payload) + payload, 0) < 0 ||
        recvmsg(card, &msg, 0) < 0)
        exit(3);
    *got = -1;
    if ((h = CMSG_FIRSTHDR(&msg)) && h->cmsg_type == SCM_RIGHTS)
        memcpy(got, CMSG_DATA(h), sizeof(*got));
    return -reply.error;
}

static void open_file(uint32_t kind, uint32_t minor)
{
    struct stat st;
    int fd;

    if (kind == SIM_NODE_UVM) {
        printf("%d 0 0\n", open("/dev/null", O_RDWR));
        return;
    }
    request = (struct sim_request){.op = SIM_OPEN, .node = kind, .minor = minor, .tgid = getpid()};
    if (ask(0, &fd) < 0 || fd < 0 || fd >= FDS || fstat(fd, &st) < 0)
        exit(3);
    id_of_fd[fd] = reply.file;
    printf("%d %llu %llu\n", fd, (unsigned long long)st.st_ino, (unsigned long long)reply.file);
}

/* Every call of type 'F', the bare numbers of nvidia-uvm, and mappings as oci_specs/seccomp/mmap_rules.py has
 * them. */
static void install_filter(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 9, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 6),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UVM_INITIALIZE, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 0xff, 0, 2),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'F' << 8, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_READ | PROT_WRITE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_READ | PROT_WRITE, 0, 6),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5]) + 4),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 0, 3, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 4096, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog prog = {.len = sizeof(f) / sizeof(*f), .filter = f};

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("%ld\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog));
}

static size_t unhex(const char *text, uint8_t *out)
{
    size_t n = 0;
    unsigned int byte;

    for (; text[0] != '-' && sscanf(text, "%2x", &byte) == 1; text += 2)
        out[n++] = (uint8_t)byte;
    return n;
}

static void hex(const uint8_t *bytes, size_t n)
{
    printf(" ");
    for (size_t i = 0; i < n; i++)
        printf("%02x", bytes[i]);
    if (!n)
        printf("-");
}

/* A subscription to a MIG instance stands there as an object that the card knows; the capability of instance
 * N is descriptor 100 + N. False: RM's no, in outer. */
static bool instance(struct rm_alloc *a, const uint8_t *params)
{
    const struct rm_instance *want = (const void *)params;

    if (a->class_id != AMPERE_SMC_PARTITION_REF && a->class_id != AMPERE_SMC_EXEC_PARTITION_REF)
        return true;
    if (want->descriptor != 100 + want->id) {
        a->status = NV_ERR_INSUFFICIENT_PERMISSIONS;
        return false;
    }
    if (a->class_id == AMPERE_SMC_EXEC_PARTITION_REF)
        a->parent = 0xd1;
    a->class_id = HOPPER_USERMODE_A;
    return true;
}

/* The file that another thread has put in the place of the one on which a call is made; -1: none. */
static int misdirected = -1;

/* The kernel and the driver, after CONTINUE: nothing but what is in memory counts. */
static int as_the_kernel(int fd, uint32_t cmd, uint8_t *outer, uint8_t *params, size_t params_bytes)
{
    uint32_t bytes = RM_SIZE(cmd);
    struct rm_map_memory *map = (void *)outer;
    int got, e;

    if (RM_NR(cmd) == NV_ESC_RM_ALLOC && bytes == sizeof(struct rm_alloc) && !instance((void *)outer, params))
        return 0;
    request = (struct sim_request){
        .op = SIM_IOCTL, .cmd = cmd, .file = id_of_fd[misdirected < 0 ? fd : misdirected], .tgid = getpid()};
    request.outer_bytes = bytes;
    request.params_bytes = (uint32_t)params_bytes;
    if (RM_NR(cmd) == NV_ESC_RM_MAP_MEMORY)
        request.aux_file = id_of_fd[map->fd];
    memcpy(request.payload, outer, bytes);
    memcpy(request.payload + bytes, params, params_bytes);
    if ((e = ask(bytes + params_bytes, &got)) < 0)
        return e;
    memcpy(outer, reply.payload, bytes);
    memcpy(params, reply.payload + bytes, reply.params_bytes);
    if (got >= 0)
        dup2(got, map->fd);
    return 0;
}

static void call(int fd, uint32_t cmd, const char *outer_text, const char *params_text, int at,
                 const char *flip)
{
    static uint8_t outer[BYTES], params[BYTES];
    size_t outer_bytes = unhex(outer_text, outer), params_bytes = unhex(params_text, params);
    uint64_t pointer = (uintptr_t)params;
    bool through;
    int e;

    /* What is read of a call that says nothing is the same each time. */
    memset(outer + outer_bytes, 0, 64);
    if (at >= 0)
        memcpy(outer + at, &pointer, sizeof(pointer));
    e = ioctl(fd, cmd, outer) < 0 ? -errno : 0;
    /* A pipe has no such calls: only the mediator answers. */
    through = e == -ENOTTY && (id_of_fd[fd] || !RM_SIZE(cmd) || cmd == UVM_INITIALIZE);
    if (through && unhex(flip, outer) && at >= 0)
        memcpy(outer + at, &pointer, sizeof(pointer));
    if (through && cmd == UVM_INITIALIZE &&
        fcntl(misdirected < 0 ? fd : misdirected, F_GETSIG) < UVM_ON_CARD_INITIALIZED &&
        fcntl(misdirected < 0 ? fd : misdirected, F_SETSIG,
              UVM_ON_CARD_INITIALIZED + (outer[0] & UVM_ON_CARD_FLAGS)) < 0)
        exit(3);
    if (through && id_of_fd[fd] && RM_SIZE(cmd))
        e = as_the_kernel(fd, cmd, outer, params, params_bytes);
    if (at >= 0)
        memset(outer + at, 0, sizeof(pointer));
    printf("%d", e);
    hex(outer, outer_bytes);
    hex(params, params_bytes);
    printf("%s\n", through ? " through" : "");
}

struct flipping {
    volatile uint32_t *at;
    uint32_t word;
    volatile bool begun, done;
};

static void *flip_until_done(void *arg)
{
    struct flipping *f = arg;
    uint32_t was = *f->at;

    while (!f->done) {
        *f->at = f->word;
        f->begun = true;
        *f->at = was;
    }
    return NULL;
}

static void race(int fd, uint32_t cmd, const char *text, int at, uint32_t word)
{
    static uint8_t outer[BYTES];
    size_t bytes = unhex(text, outer);
    struct flipping f = {.at = (void *)(outer + at), .word = word};
    pthread_t thread;
    int e;

    if (pthread_create(&thread, NULL, flip_until_done, &f))
        exit(3);
    while (!f.begun)
        ;
    e = ioctl(fd, cmd, outer) < 0 ? -errno : 0;
    f.done = true;
    pthread_join(thread, NULL);
    printf("%d", e);
    hex(outer, bytes);
    printf(" -\n");
}

static void in_child(int fd, uint32_t cmd, const char *text)
{
    pid_t child;

    fflush(stdout);
    if ((child = fork()) < 0)
        exit(3);
    if (child) {
        waitpid(child, NULL, 0);
        return;
    }
    call(fd, cmd, text, "-", -1, "-");
    fflush(stdout);
    _exit(0);
}

static int to_itself[2] = {-1, -1};

static void pass(int fd, bool receives)
{
    if (to_itself[0] < 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, to_itself) < 0)
        exit(3);
    if ((fd = pass_fd(to_itself[!receives], fd, receives)) < 0)
        exit(3);
    printf("%d\n", receives ? fd : close(fd));
}

static void take(pid_t from, int fd)
{
    int pidfd = (int)syscall(SYS_pidfd_open, from, 0);

    printf("%ld\n", syscall(SYS_pidfd_getfd, pidfd, fd, 0));
    close(pidfd);
}

/* A word of the USERD at the start of what the fd maps. */
static void put(int fd, uint32_t value, uint32_t offset)
{
    uint8_t *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED)
        exit(3);
    *(volatile uint32_t *)(void *)(at + offset) = value;
    munmap(at, 4096);
    printf("put\n");
}

static bool call_as_said(const char *text)
{
    static char outer[2 * BYTES], params[2 * BYTES], flip[2 * BYTES];
    unsigned int cmd;
    int fd, where;

    if (sscanf(text, "ioctl %d %x %s %s %d %s", &fd, &cmd, outer, params, &where, flip) != 6)
        return false;
    call(fd, cmd, outer, params, where, flip);
    return true;
}

static bool race_as_said(const char *text)
{
    static char outer[2 * BYTES];
    unsigned int cmd, word;
    int fd, where;

    if (sscanf(text, "race %d %x %s %d %x", &fd, &cmd, outer, &where, &word) != 5)
        return false;
    race(fd, cmd, outer, where, word);
    return true;
}

static bool child_as_said(const char *text)
{
    static char outer[2 * BYTES];
    unsigned int cmd;
    int fd;

    if (sscanf(text, "child %d %x %s", &fd, &cmd, outer) != 3)
        return false;
    in_child(fd, cmd, outer);
    return true;
}

static struct aside {
    pthread_t thread;
    pid_t tid;
    sem_t said, done;
    const char *what; /* NULL: end */
} aside[ASIDE];
static int asides;

static void *beside(void *arg)
{
    struct aside *a = arg;

    a->tid = (pid_t)syscall(SYS_gettid);
    for (;;) {
        sem_wait(&a->said);
        if (!a->what)
            return NULL;
        call_as_said(a->what);
        sem_post(&a->done);
    }
}

static void say(struct aside *a, const char *what)
{
    a->what = what;
    sem_post(&a->said);
    sem_wait(&a->done);
}

static void start_aside(const char *what)
{
    struct aside *a = &aside[asides++];

    if (asides > ASIDE)
        exit(3);
    sem_init(&a->said, 0, 0);
    sem_init(&a->done, 0, 0);
    pthread_create(&a->thread, NULL, beside, a);
    say(a, what);
}

/* The kernel knows none of them now. */
static void join(void)
{
    for (; asides; asides--) {
        struct aside *a = &aside[asides - 1];

        a->what = NULL;
        sem_post(&a->said);
        pthread_join(a->thread, NULL);
        while (syscall(SYS_tgkill, getpid(), a->tid, 0) == 0)
            sched_yield();
    }
    printf("joined\n");
}

static void on_signal(int signal)
{
    (void)signal;
}

int main(int argc, char **argv)
{
    const struct sigaction again = {.sa_handler = on_signal, .sa_flags = SA_RESTART},
                           gives_up = {.sa_handler = on_signal};
    static char text[4 * BYTES];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    unsigned int kind, minor;
    int fd;

    if (argc != 2)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigaction(SIGUSR1, &again, NULL);
    sigaction(SIGUSR2, &gives_up, NULL);
    strncpy(at.sun_path, argv[1], sizeof(at.sun_path) - 1);
    card = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(card, (struct sockaddr *)&at, sizeof(at)) < 0)
        return 3;
    while (fgets(text, sizeof(text), stdin)) {
        if (sscanf(text, "open %u %u", &kind, &minor) == 2)
            open_file(kind, minor);
        else if (sscanf(text, "close %d", &fd) == 1)
            printf("%d\n", close(fd));
        else if (sscanf(text, "astray %d", &fd) == 1)
            printf("%d\n", misdirected = fd);
        else if (sscanf(text, "dup %d", &fd) == 1)
            printf("%d\n", dup(fd));
        else if (sscanf(text, "send %d", &fd) == 1)
            pass(fd, false);
        else if (!strncmp(text, "receive", 7))
            pass(-1, true);
        else if (sscanf(text, "take %u %d", &kind, &fd) == 2)
            take((pid_t)kind, fd);
        else if (!strncmp(text, "filter", 6))
            install_filter();
        else if (sscanf(text, "put %d %u", &fd, &minor) == 2)
            put(fd, minor, RM_USERD_GP_PUT);
        else if (sscanf(text, "get %d %u", &fd, &minor) == 2)
            put(fd, minor, RM_USERD_GP_GET);
        else if (!strncmp(text, "aside ", 6))
            start_aside(text + 6);
        else if (!strncmp(text, "again ", 6) && asides)
            say(&aside[0], text + 6);
        else if (!strncmp(text, "join", 4))
            join();
        else if (!strncmp(text, "exec", 4)) {
            printf("exec\n");
            fflush(stdout);
            execv("/proc/self/exe", argv);
        } else if (!call_as_said(text) && !race_as_said(text) && !child_as_said(text) && !maps_as_said(text))
            return 2;
        fflush(stdout);
    }
    return 0;
}

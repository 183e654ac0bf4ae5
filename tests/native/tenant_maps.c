/*   file PATH                           the descriptor of a new open file
 *   map FD ADDRESS BYTES FLAGS          shared, for reading and writing, from the address as the offset: the
 * errno ordinary FD ADDRESS BYTES OFFSET    the same at an offset of its own unmap ADDRESS BYTES sibling FD
 * ADDRESS BYTES FLAGS      map, by another process with this one's memory, which then ends elsewhere FD
 * OFFSET BYTES FLAGS     the same at an address that the kernel chooses spun FD ADDRESS BYTES FLAGS by a
 * thread that is never seen to have come out of the call shares                              another process
 * with this one's memory waits for its end forked FD ADDRESS BYTES FLAGS       by a child with memory of its
 * own, which waits swapped FD OTHER ADDRESS BYTES      map of FD while another thread puts OTHER in its
 * place: 1 once the kernel has mapped that, and what was asked about was FD; 0 when that does not happen */
#define _GNU_SOURCE
#include "tenant_maps.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK_BYTES = 64 << 10, TRIES = 50000 };

struct mapping {
    int fd;
    unsigned long long address, bytes, offset;
    unsigned int flags;
    int result;
    bool made;
};

static int make(void *what)
{
    struct mapping *m = what;
    void *at = mmap((void *)(uintptr_t)m->address, m->bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | (int)m->flags, m->fd, (off_t)m->offset);

    m->result = at == MAP_FAILED ? -errno : 0;
    return 0;
}

static void by_sibling(struct mapping *m)
{
    static char stack[STACK_BYTES] __attribute__((aligned(16)));
    pid_t child = clone(make, stack + sizeof(stack), CLONE_VM | CLONE_FILES | SIGCHLD, m);

    if (child < 0 || waitpid(child, NULL, 0) != child)
        exit(3);
}

static void elsewhere(struct mapping *m)
{
    m->address = 0;
    by_sibling(m);
}

static int wait_for_parent(void *unused)
{
    struct pollfd parent = {.fd = (int)syscall(SYS_pidfd_open, getppid(), 0), .events = POLLIN};

    (void)unused;
    return poll(&parent, 1, -1);
}

static void share(void)
{
    static char stack[STACK_BYTES] __attribute__((aligned(16)));

    printf("%d\n", clone(wait_for_parent, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL));
}

/* Nothing says of a thread that is or would be on a processor whether it is in a system call. It takes what
 * no other wants. */
static void *make_and_spin(void *what)
{
    struct mapping *m = what;

    make(m);
    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
    __atomic_store_n(&m->made, true, __ATOMIC_RELEASE);
    for (;;)
        ;
    return NULL;
}

static void by_thread(const struct mapping *said)
{
    static struct mapping m;
    pthread_t thread;

    m = *said;
    if (pthread_create(&thread, NULL, make_and_spin, &m))
        exit(3);
    while (!__atomic_load_n(&m.made, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void by_child(struct mapping *m)
{
    int said[2];
    pid_t child;

    if (pipe(said) < 0 || (child = fork()) < 0)
        exit(3);
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        make(m);
        if (write(said[1], &m->result, sizeof(m->result)) != sizeof(m->result))
            _exit(3);
        pause();
        _exit(0);
    }
    if (read(said[0], &m->result, sizeof(m->result)) != sizeof(m->result))
        exit(3);
    close(said[0]);
    close(said[1]);
}

static bool is_of(const struct mapping *m, int fd)
{
    struct stat mapped, file;
    char path[80];

    snprintf(path, sizeof(path), "/proc/self/map_files/%llx-%llx", m->address, m->address + m->bytes);
    return stat(path, &mapped) == 0 && fstat(fd, &file) == 0 && mapped.st_ino == file.st_ino;
}

struct swapping {
    int at, one, other;
    volatile bool begun, done;
};

static void *swap(void *arg)
{
    struct swapping *s = arg;

    while (!s->done) {
        dup2(s->one, s->at);
        dup2(s->other, s->at);
        s->begun = true;
    }
    return NULL;
}

/* The other file is too large for the container, so whatever is mapped of it was not asked about. */
static int race(struct mapping *m, int other)
{
    struct swapping s = {.at = dup(m->fd), .one = m->fd, .other = other};
    pthread_t thread;
    int won = 0;

    if (pthread_create(&thread, NULL, swap, &s))
        exit(3);
    while (!s.begun)
        ;
    m->fd = s.at;
    for (int i = 0; i < TRIES && !won; i++) {
        make(m);
        if (m->result == 0 && !(won = is_of(m, other)))
            munmap((void *)(uintptr_t)m->address, m->bytes);
        if (m->result == -EPERM)
            break;
    }
    s.done = true;
    pthread_join(thread, NULL);
    close(s.at);
    return won;
}

bool maps_as_said(const char *text)
{
    struct mapping m = {0};
    char name[4096];
    int other;

    if (sscanf(text, "file %4095s", name) == 1) {
        printf("%d\n", open(name, O_RDWR | O_CLOEXEC));
    } else if (!strncmp(text, "shares", 6)) {
        share();
    } else if (sscanf(text, "unmap %llx %llx", &m.address, &m.bytes) == 2) {
        printf("%d\n", munmap((void *)(uintptr_t)m.address, m.bytes));
    } else if (sscanf(text, "swapped %d %d %llx %llx", &m.fd, &other, &m.address, &m.bytes) == 4) {
        m.offset = m.address;
        m.flags = MAP_FIXED;
        printf("%d\n", race(&m, other));
    } else if (sscanf(text, "ordinary %d %llx %llx %llx", &m.fd, &m.address, &m.bytes, &m.offset) == 4) {
        make(&m);
        printf("%d\n", m.result);
    } else if (sscanf(text, "%15s %d %llx %llx %x", name, &m.fd, &m.address, &m.bytes, &m.flags) == 5) {
        m.offset = m.address;
        if (!strcmp(name, "map"))
            make(&m);
        else if (!strcmp(name, "sibling"))
            by_sibling(&m);
        else if (!strcmp(name, "elsewhere"))
            elsewhere(&m);
        else if (!strcmp(name, "spun"))
            by_thread(&m);
        else if (!strcmp(name, "forked"))
            by_child(&m);
        else
            return false;
        printf("%d\n", m.result);
    } else {
        return false;
    }
    return true;
}

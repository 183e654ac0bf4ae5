/* Makes the calls of a recorded program again: replay SCRIPT [answers|STARTS INIT UNTIL
 * [supervised|copying]]. A line of the script is a call (tests/recordings/script.py writes them): its row,
 * then "open PATH ROW_TO_CLOSE", "close ROW_OF_FILE", "mmap ROW_OF_FILE ADDRESS BYTES" or
 * "ioctl ROW_OF_FILE CMD BYTES WORDS PARAMS_BYTES WORDS STATUS_AT NOTIFIED".
 * A word is OFFSET:VALUE, in hex; "*8" behind a value: 64 bits. Values that differ in every run: CN the N-th
 * client, FN the descriptor of the file that row N opened, P the parameters, M memory of the program's own,
 * LN where the object N was mapped, Z a list of zeros. Prints "ROW RESULT ERRNO STATUS MMAP" of each call,
 * for answers its parameters after it too, or its struct if it has none, in hex, without zeros at the end.
 * With STARTS it prints what so many starts took instead, each a process: {"init_us": ..., "context_us": ...,
 * "call_us": {ROW: ...}}: each call's median of them up to the row UNTIL, and their sums up to the row INIT
 * and from there. What else runs on the machine falls on few of a call's times. supervised: under a
 * supervisor that lets every NOTIFIED call go on, than which none can be had for less. copying: under one
 * that makes the system calls besides that a mediator cannot do without. */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include "../../base/clock.h"
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
enum {
    ROWS = 2048,
    WORDS = 64,
    HANDLES = 1024,
    CLIENTS = 8,
    BUFFER = 16384,
    LINE = 4096,
    NO_STATUS = 0xffff,
    STARTS = 64,
    PAUSE_US = 20000
};
enum { OWN_MEMORY_BYTES = 2 << 20 };
enum { HANDLE_AT = 8, CLASS_AT = 0xc, LENGTH_AT = 0x18, LINEAR_AT = 0x20 };

struct word {
    uint32_t at;
    char kind; /* or 0: a number */
    bool wide;
    uint64_t value;
};
struct call {
    uint32_t row, cmd, bytes, params_bytes, status_at, words, params_words;
    int file, closes; /* rows; -1: none */
    bool notified;
    char path[32]; /* "": another call */
    bool only_closes;
    uint64_t map_at, map_bytes; /* 0: no mmap() */
    struct word word[WORDS], param[WORDS];
};

static struct call calls[ROWS];
static uint32_t call_count;
static int fd_of[ROWS];
static uint32_t client[CLIENTS + 1], clients;
static uint64_t linear[HANDLES];
static struct {
    void *at;
    size_t bytes;
} mapped[HANDLES];

static void fail(const char *what)
{
    fprintf(stderr, "replay: %s\n", what);
    exit(2);
}

static uint32_t parse_words(char *text, struct word *out)
{
    uint32_t n = 0;

    for (char *saved, *item = strtok_r(text, ",", &saved); item; item = strtok_r(NULL, ",", &saved)) {
        char *value = strchr(item, ':');

        if (n == WORDS || !value)
            fail("a call has too many words, or one without a value");
        *value++ = 0;
        out[n].at = (uint32_t)strtoul(item, NULL, 16);
        out[n].wide = strstr(value, "*8");
        if (strchr("CFPMLZ", *value))
            out[n].kind = *value++;
        out[n].value = strtoull(value, NULL, out[n].kind ? 10 : 16);
        n++;
    }
    return n;
}

static void parse(const char *path)
{
    FILE *file = fopen(path, "re");
    static char line[LINE], words[LINE], params[LINE];

    if (!file)
        fail("the script is not there");
    for (; fgets(line, sizeof(line), file); call_count++) {
        struct call *c = &calls[call_count];
        int notified;

        if (call_count == ROWS)
            fail("the script has too many calls");
        if (sscanf(line, "%u open %31s %d", &c->row, c->path, &c->closes) == 3)
            continue;
        c->path[0] = 0;
        c->only_closes = sscanf(line, "%u close %d", &c->row, &c->file) == 2;
        if (c->only_closes || sscanf(line, "%u mmap %d %" SCNx64 " %" SCNx64, &c->row, &c->file, &c->map_at,
                                     &c->map_bytes) == 4)
            continue;
        if (sscanf(line, "%u ioctl %d %x %u %4095s %u %4095s %x %d", &c->row, &c->file, &c->cmd, &c->bytes,
                   words, &c->params_bytes, params, &c->status_at, &notified) != 9 ||
            c->bytes > BUFFER || c->params_bytes > BUFFER)
            fail(line);
        c->notified = notified;
        c->words = *words == '-' ? 0 : parse_words(words, c->word);
        c->params_words = *params == '-' ? 0 : parse_words(params, c->param);
    }
    fclose(file);
}

static void *own_memory(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

static uint64_t resolved(const struct word *w, void *params)
{
    static uint8_t list[BUFFER];

    switch (w->kind) {
    case 'C':
        return client[w->value];
    case 'F':
        return (uint64_t)fd_of[w->value];
    case 'P':
        return (uintptr_t)params;
    case 'M':
        return (uintptr_t)own_memory(OWN_MEMORY_BYTES);
    case 'L':
        return linear[w->value % HANDLES];
    case 'Z':
        return (uintptr_t)list;
    default:
        return w->value;
    }
}

static void fill(uint8_t *out, uint32_t bytes, const struct word *words, uint32_t count, void *params)
{
    memset(out, 0, bytes);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = resolved(&words[i], params);
        bool wide = words[i].wide || strchr("PMLZ", words[i].kind ? words[i].kind : '-');

        memcpy(out + words[i].at, &value, wide ? 8 : 4);
    }
}

static uint64_t field(const uint8_t *in, uint32_t at, size_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, in + at, bytes);
    return value;
}

/* What a success is followed by. Returns the errno of mmap(). */
static int follow(const struct call *c, const uint8_t *outer)
{
    uint32_t memory = (uint32_t)field(outer, HANDLE_AT, 4) % HANDLES, class_id;
    uint8_t nr = (uint8_t)c->cmd;
    size_t bytes;

    if (c->cmd >> 30 != 3)
        return 0;
    if (nr == NV_ESC_RM_ALLOC) {
        class_id = (uint32_t)field(outer, CLASS_AT, 4);
        if ((class_id <= 1 || class_id == NV01_ROOT_CLIENT) && clients < CLIENTS)
            client[++clients] = (uint32_t)field(outer, HANDLE_AT, 4);
    } else if (nr == NV_ESC_RM_MAP_MEMORY) {
        bytes = (size_t)field(outer, LENGTH_AT, 8);
        linear[memory] = field(outer, LINEAR_AT, 8);
        mapped[memory].at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)field(outer, 0x30, 4),
                                 (off_t)linear[memory]);
        mapped[memory].bytes = bytes;
        if (mapped[memory].at == MAP_FAILED) {
            mapped[memory].at = NULL;
            return errno;
        }
    } else if (nr == NV_ESC_RM_UNMAP_MEMORY && mapped[memory].at) {
        munmap(mapped[memory].at, mapped[memory].bytes);
        mapped[memory].at = NULL;
    }
    return 0;
}

/* Up to the last byte that is not zero. */
static void print_answer(const uint8_t *answer, uint32_t bytes)
{
    while (bytes && !answer[bytes - 1])
        bytes--;
    printf(bytes ? " " : " -");
    for (uint32_t i = 0; i < bytes; i++)
        printf("%02x", answer[i]);
}

/* At the address that the recorded program had. */
static int map_there(const struct call *c)
{
    void *at = mmap((void *)(uintptr_t)c->map_at, c->map_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED_NOREPLACE, fd_of[c->file], (off_t)c->map_at);

    return at == MAP_FAILED ? -1 : 0;
}

enum tell { TELL_NOTHING, TELL_RESULTS, TELL_ANSWERS };

static void make(const struct call *c, enum tell tell)
{
    static _Alignas(16) uint8_t outer[BUFFER], params[BUFFER];
    uint32_t status = 0;
    int result, e, unmapped = 0;

    if (*c->path) {
        if (c->closes >= 0)
            close(fd_of[c->closes]);
        errno = 0;
        result = fd_of[c->row] = open(c->path, O_RDWR | O_CLOEXEC);
        if (tell)
            printf("%u %d %d 0 0%s\n", c->row, result < 0 ? -1 : 0, result < 0 ? errno : 0,
                   tell == TELL_ANSWERS ? " -" : "");
        return;
    }
    if (c->only_closes || c->map_bytes) {
        errno = 0;
        result = c->only_closes ? close(fd_of[c->file]) : map_there(c);
        if (tell)
            printf("%u %d %d 0 0%s\n", c->row, result, result ? errno : 0, tell == TELL_ANSWERS ? " -" : "");
        return;
    }
    fill(params, c->params_bytes, c->param, c->params_words, NULL);
    fill(outer, c->bytes, c->word, c->words, params);
    errno = 0;
    result = ioctl(fd_of[c->file], c->cmd, outer);
    e = errno;
    if (c->status_at != NO_STATUS)
        status = (uint32_t)field(outer, c->status_at, 4);
    if (!result && !status)
        unmapped = follow(c, outer);
    if (!tell)
        return;
    printf("%u %d %d %x %d", c->row, result, result ? e : 0, status, unmapped);
    if (tell == TELL_ANSWERS)
        print_answer(c->params_bytes ? params : outer, c->params_bytes ? c->params_bytes : c->bytes);
    putchar('\n');
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static double median(double *all, uint32_t n)
{
    qsort(all, n, sizeof(*all), compare);
    return all[n / 2];
}

/* A listener of the calls that are marked, each by the whole of its number. */
static int listener(void)
{
    enum { HEAD = 4, RETURNS = 2 };
    struct sock_filter f[HEAD + 128 + RETURNS] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
    };
    uint32_t cmd[128], n = 0;

    for (uint32_t i = 0; i < call_count; i++) {
        uint32_t k = 0;

        while (k < n && cmd[k] != calls[i].cmd)
            k++;
        if (calls[i].notified && k == n && n < 128)
            cmd[n++] = calls[i].cmd;
    }
    for (uint32_t k = 0; k < n; k++)
        f[HEAD + k] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, cmd[k], (uint8_t)(n - k), 0);
    f[HEAD + n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[HEAD + n + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &(struct sock_fprog){(uint16_t)(HEAD + n + RETURNS), f});
}

struct shared {
    volatile int listener, go;
    double call_us[ROWS];
};

static void start(struct shared *s, uint32_t until, bool supervised)
{
    double begin, end;

    if (supervised) {
        s->listener = listener();
        while (!s->go)
            usleep(100);
    }
    begin = (double)monotonic_ns() / 1e3;
    for (uint32_t i = 0; i < call_count && calls[i].row <= until; i++) {
        make(&calls[i], TELL_NOTHING);
        end = (double)monotonic_ns() / 1e3;
        s->call_us[i] = end - begin;
        begin = end;
    }
    _exit(0);
}

/* Whose file it is, a copy in, whether the call still waits before the driver is asked and after, a copy
 * out. */
static void look_and_copy(int listener_fd, const struct seccomp_notif *q)
{
    enum { BYTES = 32 }; /* as many as a control's */
    static char copy[BYTES];
    struct iovec ours = {copy, BYTES}, theirs = {(void *)(uintptr_t)q->data.args[2], BYTES};

    syscall(SYS_kcmp, (pid_t)q->pid, getpid(), KCMP_FILE, q->data.args[0], 0);
    if (process_vm_readv((pid_t)q->pid, &ours, 1, &theirs, 1, 0) != BYTES)
        return;
    ioctl(listener_fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &q->id);
    ioctl(listener_fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &q->id);
    process_vm_writev((pid_t)q->pid, &ours, 1, &theirs, 1, 0);
}

static void supervise(struct shared *s, pid_t pid, bool copies)
{
    struct seccomp_notif q;
    int pidfd, fd;

    while (!s->listener)
        usleep(100);
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    fd = (int)syscall(SYS_pidfd_getfd, pidfd, s->listener, 0);
    close(pidfd);
    if (fd < 0)
        fail("the listener cannot be had");
    ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, 1);
    s->go = 1;
    for (;;) {
        struct seccomp_notif_resp answer = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

        memset(&q, 0, sizeof(q));
        if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &q) < 0)
            break;
        if (copies)
            look_and_copy(fd, &q);
        answer.id = q.id;
        ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
    close(fd);
}

static int time_starts(uint32_t starts, uint32_t init, uint32_t until, const char *how)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static double took[ROWS][STARTS];
    double init_us = 0, context_us = 0;
    int status;

    if (starts > STARTS)
        fail("64 starts at most");
    for (uint32_t i = 0; i < starts; i++) {
        pid_t pid;

        memset(s, 0, sizeof(*s));
        usleep(PAUSE_US); /* what ends with the start before is no part of this one */
        pid = fork();
        if (pid == 0)
            start(s, until, how);
        if (how)
            supervise(s, pid, !strcmp(how, "copying"));
        if (waitpid(pid, &status, 0) != pid || status)
            return 1;
        for (uint32_t k = 0; k < call_count; k++)
            took[k][i] = s->call_us[k];
    }
    printf("{\"call_us\": {");
    for (uint32_t k = 0; k < call_count && calls[k].row <= until; k++) {
        double us = median(took[k], starts);

        *(calls[k].row > init ? &context_us : &init_us) += us;
        printf("%s\"%u\": %.1f", k ? ", " : "", calls[k].row, us);
    }
    printf("}, \"init_us\": %.1f, \"context_us\": %.1f}\n", init_us, context_us);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3 && argc != 5 && argc != 6)
        fail("usage: replay SCRIPT [answers|STARTS INIT UNTIL [supervised|copying]]");
    parse(argv[1]);
    if (argc > 3)
        return time_starts((uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]),
                           argc > 5 ? argv[5] : NULL);
    for (uint32_t i = 0; i < call_count; i++)
        make(&calls[i], argc == 2 ? TELL_RESULTS : TELL_ANSWERS);
    return 0;
}

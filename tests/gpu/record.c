/* Writes down what a program asks of NVIDIA's nodes: LD_PRELOAD=record.so RECORD_DIR=FOLDER PROGRAM.
 *
 * FOLDER/PID.jsonl has a line for each open, ioctl, mmap and close: "s" is its number, "t" its thread, "r"
 * and "e" its result and errno. Of an ioctl "c" is the command, "ns" how long it took, "i" the struct before
 * and "o" after, where it changed; of RM_ALLOC and RM_CONTROL "p" and "q" are the parameters, of "pn" bytes,
 * and "n" what pointers in these lead to, by the offset "at". All in hex, without the zeros at the end.
 *
 * With RECORD_AT_ONCE set, a program's file is made when it starts: for one that may make none later on.
 *
 * REFUSE=c503c:56,t503c0104:56,u17@8:51,mmap:12 answers calls in the driver's place: allocations of a class
 * and controls with a status; commands of nvidia-uvm with one at that offset; large mappings of it with an
 * errno. */
#define _GNU_SOURCE
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OUTER_BYTES = 8192, PARAMS_BYTES = 65536, POINTED_BYTES = 256, POINTERS = 12 };
enum { POINTERS_WITHIN = 2048, UNKNOWN_SIZE = 1024, PAGE = 4096, NAME_BYTES = 300 };
/* Nothing in the structs of nvidia-uvm says how large they are; these two are larger than others. */
enum { UVM_BYTES = 2048, ALLOC_WITH_RIGHTS = 48 };
enum { LARGE_MAPPING = 8 << 20 };

static const char dev[] = "/dev/", nodes[] = "/dev/nvidia";

/* What a call's argument leads to, at one moment. */
struct shot {
    size_t outer_bytes, params_bytes, pointers;
    uint64_t pointer[POINTERS];
    size_t pointer_at[POINTERS], pointed_bytes[POINTERS];
    unsigned char outer[OUTER_BYTES], params[PARAMS_BYTES], pointed[POINTERS][POINTED_BYTES];
};

/* Of the shots, the file and the number. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shot before, after;
static FILE *record;
static pid_t recorded_pid;
static unsigned long number;

static void hold(void)
{
    pthread_mutex_lock(&lock);
}

static void release(void)
{
    pthread_mutex_unlock(&lock);
}

static uint64_t double_word(const unsigned char *bytes)
{
    uint64_t value;

    memcpy(&value, bytes, sizeof(value));
    return value;
}

static uint32_t word(const unsigned char *bytes)
{
    uint32_t value;

    memcpy(&value, bytes, sizeof(value));
    return value;
}

static bool is_rm(unsigned long command)
{
    return _IOC_TYPE(command) == 'F';
}

/* A copy of the program's own memory as far as it is mapped: page by page, since a call that reaches beyond
 * reads nothing. */
static size_t peek(uint64_t from, unsigned char *to, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        size_t in_page = PAGE - (from + done) % PAGE;
        size_t step = in_page < bytes - done ? in_page : bytes - done;
        struct iovec ours = {to + done, step}, theirs = {(void *)(uintptr_t)(from + done), step};

        if (process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0) != (ssize_t)step)
            break;
        done += step;
    }
    return done;
}

static void shoot_params(struct shot *shot, unsigned long command, const struct shot *earlier)
{
    bool with_rights = shot->outer_bytes == ALLOC_WITH_RIGHTS;
    uint64_t params;
    size_t bytes;

    if ((_IOC_NR(command) != NV_ESC_RM_CONTROL && _IOC_NR(command) != NV_ESC_RM_ALLOC) ||
        shot->outer_bytes < 32)
        return;
    params = double_word(shot->outer + 0x10);
    bytes = word(shot->outer + (_IOC_NR(command) == NV_ESC_RM_ALLOC && with_rights ? 0x20 : 0x18));
    if (_IOC_NR(command) == NV_ESC_RM_ALLOC && !bytes)
        bytes = UNKNOWN_SIZE;
    if (earlier && earlier->params_bytes)
        bytes = earlier->params_bytes;
    if (params)
        shot->params_bytes = peek(params, shot->params, bytes < PARAMS_BYTES ? bytes : PARAMS_BYTES);
}

static void shoot_pointed(struct shot *shot)
{
    for (size_t at = 0; at + 8 <= shot->params_bytes && at < POINTERS_WITHIN && shot->pointers < POINTERS;
         at += 8) {
        uint64_t pointer = double_word(shot->params + at);
        size_t i = shot->pointers;

        if (pointer < 0x10000 || pointer >> 47)
            continue;
        shot->pointed_bytes[i] = peek(pointer, shot->pointed[i], POINTED_BYTES);
        if (!shot->pointed_bytes[i])
            continue;
        shot->pointer[i] = pointer;
        shot->pointer_at[i] = at;
        shot->pointers++;
    }
}

static void shoot_before(unsigned long command, uint64_t argument)
{
    size_t bytes = is_rm(command) && _IOC_SIZE(command) < OUTER_BYTES ? _IOC_SIZE(command) : OUTER_BYTES;

    before.params_bytes = before.pointers = 0;
    before.outer_bytes = peek(argument, before.outer, bytes);
    if (is_rm(command)) {
        shoot_params(&before, command, NULL);
        shoot_pointed(&before);
    }
}

/* The same places again, whatever the driver wrote over what led there. */
static void shoot_after(unsigned long command, uint64_t argument)
{
    after.params_bytes = 0;
    after.outer_bytes = peek(argument, after.outer, before.outer_bytes);
    if (is_rm(command))
        shoot_params(&after, command, &before);
    for (size_t i = 0; i < before.pointers; i++)
        after.pointed_bytes[i] = peek(before.pointer[i], after.pointed[i], POINTED_BYTES);
}

/* Up to the last byte that is set before or after. */
static size_t uvm_bytes(unsigned long command)
{
    bool large = command == UVM_MAP_EXTERNAL_ALLOCATION || command == UVM_REGISTER_CHANNEL;
    size_t most = large ? OUTER_BYTES : UVM_BYTES, bytes;

    bytes = before.outer_bytes < after.outer_bytes ? before.outer_bytes : after.outer_bytes;
    bytes = bytes < most ? bytes : most;
    while (bytes && !before.outer[bytes - 1] && !after.outer[bytes - 1])
        bytes--;
    return bytes;
}

/* A process that was forked has a file of its own. False: nothing is to be recorded. */
static bool record_opened(void)
{
    const char *folder = getenv("RECORD_DIR");
    char name[4 * NAME_BYTES], program[NAME_BYTES] = "";

    if (record && recorded_pid == getpid())
        return true;
    if (!folder)
        return false;
    snprintf(name, sizeof(name), "%s/%d.jsonl", folder, (int)getpid());
    record = fopen(name, "ae");
    recorded_pid = getpid();
    if (record && readlink("/proc/self/exe", program, sizeof(program) - 1) > 0)
        fprintf(record, "{\"exe\":\"%s\",\"ppid\":%d}\n", program, (int)getppid());
    return record;
}

static void write_hex(const unsigned char *bytes, size_t size)
{
    while (size && !bytes[size - 1])
        size--;
    for (size_t i = 0; i < size; i++)
        fprintf(record, "%02x", bytes[i]);
}

static void write_pair(const char *first, const unsigned char *earlier, size_t earlier_bytes,
                       const char *second, const unsigned char *later, size_t later_bytes)
{
    fprintf(record, "\"%s\":\"", first);
    write_hex(earlier, earlier_bytes);
    if (earlier_bytes != later_bytes || memcmp(earlier, later, earlier_bytes)) {
        fprintf(record, "\",\"%s\":\"", second);
        write_hex(later, later_bytes);
    }
    fputc('"', record);
}

static void write_shots(unsigned long command)
{
    size_t outer = is_rm(command) ? before.outer_bytes : uvm_bytes(command);

    fputc(',', record);
    write_pair("i", before.outer, outer, "o", after.outer, outer);
    if (before.params_bytes) {
        fprintf(record, ",\"pn\":%zu,", before.params_bytes);
        write_pair("p", before.params, before.params_bytes, "q", after.params, after.params_bytes);
    }
    for (size_t i = 0; i < before.pointers; i++) {
        fprintf(record, "%s{\"at\":%zu,", i ? "," : ",\"n\":[", before.pointer_at[i]);
        write_pair("p", before.pointed[i], before.pointed_bytes[i], "q", after.pointed[i],
                   after.pointed_bytes[i]);
        fputc('}', record);
    }
    if (before.pointers)
        fputc(']', record);
}

/* A call but an ioctl: a, b and x are what it was given beside a file. */
static void note(const char *call, int fd, const char *name, unsigned long a, unsigned long b,
                 unsigned long x, long result)
{
    int error = errno;

    hold();
    if (record_opened()) {
        fprintf(record,
                "{\"s\":%lu,\"t\":%d,\"%s\":\"%s\",\"fd\":%d,\"a\":\"%#lx\",\"b\":\"%#lx\",\"x\":\"%#lx\",",
                number++, gettid(), call, name, fd, a, b, x);
        fprintf(record, "\"r\":\"%#lx\",\"e\":%d}\n", result, result == -1 ? error : 0);
        fflush(record);
    }
    release();
    errno = error;
}

/* Whether it is one of NVIDIA's; the name below /dev. */
static bool is_node(int fd, char name[NAME_BYTES])
{
    int error = errno;
    char link[64], path[NAME_BYTES];
    ssize_t size;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof(path) - 1);
    errno = error;
    if (size < (ssize_t)strlen(nodes) || strncmp(path, nodes, strlen(nodes)) != 0)
        return false;
    path[size] = 0;
    strcpy(name, path + strlen(dev));
    return true;
}

static const char *next(const char *entry)
{
    const char *comma = strchr(entry, ',');

    return comma ? comma + 1 : NULL;
}

/* True: the call has the status that REFUSE gives it. */
static bool refused(unsigned long command, uint64_t argument)
{
    bool is_alloc = _IOC_NR(command) == NV_ESC_RM_ALLOC, is_control = _IOC_NR(command) == NV_ESC_RM_CONTROL;

    for (const char *entry = getenv("REFUSE"); entry; entry = next(entry)) {
        unsigned of, at, status;
        bool hit;
        char kind;

        if (is_rm(command)) {
            hit = (is_alloc || is_control) && sscanf(entry, "%c%x:%x", &kind, &of, &status) == 3 &&
                  kind == (is_alloc ? 'c' : 't') && of == word(before.outer + (is_alloc ? 12 : 8));
            at = is_alloc && before.outer_bytes == ALLOC_WITH_RIGHTS ? 0x28 : 0x1c;
        } else {
            hit = sscanf(entry, "u%x@%x:%x", &of, &at, &status) == 3 && of == command;
        }
        if (hit) {
            memcpy((void *)(uintptr_t)(argument + at), &status, sizeof(status));
            return true;
        }
    }
    return false;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int ioctl(int fd, unsigned long command, ...)
{
    char name[NAME_BYTES];
    uint64_t argument, begin, took;
    int result = 0, error;
    va_list rest;

    va_start(rest, command);
    argument = (uintptr_t)va_arg(rest, void *);
    va_end(rest);
    if (!is_node(fd, name))
        return (int)syscall(SYS_ioctl, fd, command, argument);
    error = errno;
    hold();
    shoot_before(command, argument);
    errno = error;
    begin = now_ns();
    if (!refused(command, argument))
        result = (int)syscall(SYS_ioctl, fd, command, argument);
    error = errno;
    took = now_ns() - begin;
    shoot_after(command, argument);
    if (record_opened()) {
        fprintf(record,
                "{\"s\":%lu,\"t\":%d,\"fd\":%d,\"f\":\"%s\",\"c\":\"%#lx\",\"r\":%d,\"e\":%d,\"ns\":%lu",
                number++, gettid(), fd, name, command, result, result < 0 ? error : 0, took);
        write_shots(command);
        fputs("}\n", record);
        fflush(record);
    }
    release();
    errno = error;
    return result;
}

static int opened(int folder, const char *path, int flags, unsigned mode)
{
    int fd = (int)syscall(SYS_openat, folder, path, flags, mode);

    if (strncmp(path, nodes, strlen(nodes)) == 0)
        note("open", fd, path, (unsigned)flags, mode, 0, fd);
    return fd;
}

/* A mode is given only where a file is made. */
int open(const char *path, int flags, ...)
{
    unsigned mode;
    va_list rest;

    va_start(rest, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    unsigned mode;
    va_list rest;

    va_start(rest, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    return opened(folder, path, flags, mode);
}

static bool mapping_refused(const char *name, size_t bytes)
{
    for (const char *entry = getenv("REFUSE"); entry; entry = next(entry)) {
        if (strcmp(name, "nvidia-uvm") == 0 && bytes >= LARGE_MAPPING &&
            sscanf(entry, "mmap:%d", &errno) == 1)
            return true;
    }
    return false;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    char name[NAME_BYTES];
    bool of_node = fd >= 0 && !(flags & MAP_ANONYMOUS) && is_node(fd, name);
    void *mapped = MAP_FAILED;

    if (!of_node || !mapping_refused(name, bytes))
        mapped = (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
    if (of_node)
        note("mmap", fd, name, bytes, (unsigned long)offset,
             (unsigned long)protection << 32 | (unsigned)flags, (long)mapped);
    return mapped;
}

int close(int fd)
{
    char name[NAME_BYTES];
    bool of_node = is_node(fd, name);
    int result = (int)syscall(SYS_close, fd);

    if (of_node)
        note("close", fd, name, 0, 0, 0, result);
    return result;
}

/* A child has neither a lock that nobody gives back nor half a line. */
__attribute__((constructor)) static void begin(void)
{
    pthread_atfork(hold, release, release);
    if (getenv("RECORD_AT_ONCE"))
        record_opened();
}

/* By their other names. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char *path, int flags, ...) __attribute__((alias("openat")));
void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

#define _GNU_SOURCE
#include "tracee.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { RED_ZONE_BYTES = 128, EVENT_SHIFT = 16, WORD = sizeof(long), CALL_BYTES = 3 };

static int stopped(pid_t tid, int *status)
{
    return waitpid(tid, status, __WALL) == tid && WIFSTOPPED(*status) ? 0 : -ESRCH;
}

int tracee_seize(struct tracee *tracee, pid_t tid)
{
    int status;

    *tracee = (struct tracee){.tid = tid};
    if (ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_SUSPEND_SECCOMP) || ptrace(PTRACE_INTERRUPT, tid, 0, 0))
        return -errno;
    if (stopped(tid, &status))
        return -ESRCH;
    return ptrace(PTRACE_GETREGS, tid, 0, &tracee->registers) ? -errno : 0;
}

void tracee_leave(const struct tracee *tracee)
{
    ptrace(PTRACE_DETACH, tracee->tid, 0, 0);
}

uint64_t tracee_room(const struct tracee *tracee, size_t bytes)
{
    return (tracee->registers.rsp - RED_ZONE_BYTES - bytes) & ~(uint64_t)15;
}

int tracee_write(const struct tracee *tracee, uint64_t at, const void *data, size_t bytes)
{
    struct iovec ours = {(void *)(uintptr_t)data, bytes}, theirs = {(void *)(uintptr_t)at, bytes};

    return process_vm_writev(tracee->tid, &ours, 1, &theirs, 1, 0) == (ssize_t)bytes ? 0 : -EFAULT;
}

/* Shared memory can be written by another process meanwhile, of another container even: what is put there
 * would not be what runs, and no filter sees it. */
static bool is_private(pid_t tid, uint64_t at)
{
    char path[32], *line = NULL, kind = 0;
    unsigned long begin, end = 0;
    size_t room = 0;
    FILE *maps;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)tid);
    if (!(maps = fopen(path, "re")))
        return false;
    while (end <= at && getline(&line, &room, maps) > 0)
        if (sscanf(line, "%lx-%lx %*3c%c", &begin, &end, &kind) != 3)
            break;
    free(line);
    fclose(maps);
    return end > at && begin <= at && kind == 'p';
}

/* Puts a word of code there, which ptrace may where the process may not; the one that was there. */
static bool exchange(pid_t tid, uint64_t at, long code, long *before)
{
    errno = 0;
    *before = ptrace(PTRACE_PEEKTEXT, tid, at, 0);
    return !errno && !ptrace(PTRACE_POKETEXT, tid, at, code);
}

/* To the breakpoint behind the call. Other stops on the way are passed, such as that of its group and a
 * SIGTRAP that it has sent itself. */
static int run_to_breakpoint(pid_t tid, uint64_t at, struct user_regs_struct *registers)
{
    int status;

    do {
        if (ptrace(PTRACE_CONT, tid, 0, 0) || stopped(tid, &status) ||
            ptrace(PTRACE_GETREGS, tid, 0, registers))
            return -ESRCH;
    } while (WSTOPSIG(status) != SIGTRAP || status >> EVENT_SHIFT || registers->rip != at);
    return 0;
}

long tracee_call(const struct tracee *tracee, long number, uint64_t first, uint64_t second, uint64_t third)
{
    static const uint8_t syscall_then_breakpoint[CALL_BYTES] = {0x0f, 0x05, 0xcc};
    struct user_regs_struct registers = tracee->registers;
    uint64_t at = registers.rip & ~(uint64_t)(WORD - 1);
    long ours = 0, theirs, result = -EFAULT;

    memcpy(&ours, syscall_then_breakpoint, CALL_BYTES);
    registers.rip = at;
    registers.rax = (uint64_t)number;
    registers.orig_rax = (uint64_t)-1; /* nothing that the kernel would begin again */
    registers.rdi = first;
    registers.rsi = second;
    registers.rdx = third;
    if (!is_private(tracee->tid, at) || !exchange(tracee->tid, at, ours, &theirs))
        return result;
    if (!ptrace(PTRACE_SETREGS, tracee->tid, 0, &registers)) {
        result = run_to_breakpoint(tracee->tid, at + CALL_BYTES, &registers);
        if (!result)
            result = (long)registers.rax;
    }
    exchange(tracee->tid, at, theirs, &ours);
    ptrace(PTRACE_SETREGS, tracee->tid, 0, &tracee->registers);
    return result;
}

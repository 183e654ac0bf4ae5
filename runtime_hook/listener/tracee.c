#define _GNU_SOURCE
#include "tracee.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { RED_ZONE_BYTES = 128, EVENT_SHIFT = 16, WORD = sizeof(long), CODE_BYTES = 2 * WORD };

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

/* Exchanges the two words of code at `at`, which ptrace may write where the process may not. */
static bool exchange(pid_t tid, uint64_t at, const uint8_t *code, uint8_t *before)
{
    for (size_t i = 0; i < CODE_BYTES; i += WORD) {
        long word, old;

        errno = 0;
        old = ptrace(PTRACE_PEEKTEXT, tid, at + i, 0);
        memcpy(before + i, &old, WORD);
        memcpy(&word, code + i, WORD);
        if (errno || ptrace(PTRACE_POKETEXT, tid, at + i, word))
            return false;
    }
    return true;
}

/* To the breakpoint behind the call. Other stops on the way, such as that of its group, are passed. */
static int run_to_breakpoint(pid_t tid)
{
    int status;

    do {
        if (ptrace(PTRACE_CONT, tid, 0, 0) || stopped(tid, &status))
            return -ESRCH;
    } while (WSTOPSIG(status) != SIGTRAP || status >> EVENT_SHIFT);
    return 0;
}

long tracee_call(const struct tracee *tracee, long number, uint64_t first, uint64_t second, uint64_t third)
{
    static const uint8_t syscall_then_breakpoint[CODE_BYTES] = {0x0f, 0x05, 0xcc};
    struct user_regs_struct registers = tracee->registers;
    uint64_t at = registers.rip & ~(uint64_t)(WORD - 1);
    uint8_t before[CODE_BYTES], ours[CODE_BYTES];
    long result = -EFAULT;

    registers.rip = at;
    registers.rax = (uint64_t)number;
    registers.orig_rax = (uint64_t)-1; /* nothing that the kernel would begin again */
    registers.rdi = first;
    registers.rsi = second;
    registers.rdx = third;
    if (!exchange(tracee->tid, at, syscall_then_breakpoint, before))
        return result;
    if (!ptrace(PTRACE_SETREGS, tracee->tid, 0, &registers)) {
        result = run_to_breakpoint(tracee->tid);
        if (!result && !ptrace(PTRACE_GETREGS, tracee->tid, 0, &registers))
            result = (long)registers.rax;
    }
    exchange(tracee->tid, at, before, ours);
    ptrace(PTRACE_SETREGS, tracee->tid, 0, &tracee->registers);
    return result;
}

/* A process that its sibling holds by the strings of ptrace: the sibling changes the system call at its
 * entry, after the arguments were chosen and before they are looked at, and stops it in the middle of calls.
 * Usage: puppet SECONDS. Prints "done STOPS CHANGED", and stands still: CHANGED calls went on under another
 * command. */
#include "../rm.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

enum { ERESTARTSYS = 512 }; /* the least of the kernel's own errors, with which a call is made again */

/* However little of a second a busy machine gives it. */
enum { STOPS_MIN = 200, CHANGED_MIN = 80 };

static struct rm_alloc call;
static struct rm_memory memory = {.owner = OWNER, .size = MIB};

/* Makes harmless calls: the command that means something is put in by the tracer. */
static void puppet(void)
{
    uint32_t client = 0;
    int fd = open_client(&client);

    for (uint32_t i = 0;; i++) {
        call = (struct rm_alloc){
            .root = client,
            .parent = DEVICE,
            .handle = FIRST_MEMORY + i,
            .class_id = NV01_MEMORY_LOCAL_USER,
            .params = (uintptr_t)&memory,
            .params_size = sizeof(memory),
        };
        ioctl(fd, 0x5401, &call); /* TCGETS: the filter lets it be */
        if (i % 600 == 599) {
            rm_free(fd, client, DEVICE);
            rm_device(fd, client);
        }
    }
}

/* It is at the end of a call, which it is not to make again. */
static bool answered(pid_t child)
{
    struct __ptrace_syscall_info info = {0};

    ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info);
    return info.op == PTRACE_SYSCALL_INFO_EXIT && info.exit.rval > -ERESTARTSYS;
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
    unsigned long stops = 0, changed = 0;
    uint64_t state = 1;
    pid_t child = fork();
    int status;

    if (child == 0) {
        raise(SIGSTOP);
        puppet();
    }
    must(waitpid(child, &status, WUNTRACED) == child, "child");
    must(!ptrace(PTRACE_SEIZE, child, NULL, PTRACE_O_TRACESYSGOOD), "seize");
    kill(child, SIGCONT);
    while (stops < STOPS_MIN || changed < CHANGED_MIN || time(NULL) < end) {
        struct user_regs_struct regs;

        if (waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status))
            break;
        stops++;
        if (!ptrace(PTRACE_GETREGS, child, NULL, &regs) && regs.orig_rax == SYS_ioctl && regs.rsi == 0x5401 &&
            (long)regs.rax == -ENOSYS) {
            regs.rsi = RM_CMD(NV_ESC_RM_ALLOC, sizeof(call));
            changed += !ptrace(PTRACE_SETREGS, child, NULL, &regs);
        }
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
        /* Now and then it is torn out of the call it waits in. */
        if (below(&state, 4) == 0) {
            usleep(below(&state, 60));
            ptrace(PTRACE_INTERRUPT, child, NULL, NULL);
        }
    }
    /* No call is under way when its memory is looked at. */
    while (waitpid(child, &status, __WALL) == child && WIFSTOPPED(status) && !answered(child))
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    say("done %lu %lu", stops, changed);
    hold();
}

/* mgpu-listener PID SOCKET: gives a restored process the listener that its filter has lost, and sends it
 * where a runtime sends one: to SOCKET, with the runtime's message, which comes on stdin. The filter's
 * program goes to stdout, to be judged before the process goes on.
 *
 * CRIU restores a filter as a program without a listener, and its notified calls get ENOSYS. The same
 * program on top of it, made with a listener, is the one that the kernel asks: of equal verdicts the newest
 * filter's counts. The process does that itself, held by ptrace. */
#define _GNU_SOURCE
#include "runtime_hook/common/report.h"
#include "tracee.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { FILTERS_MAX = 64, MESSAGE_BYTES = 1 << 20 };

struct program {
    struct sock_filter *code;
    unsigned short count;
};

static bool notifies(const struct program *program)
{
    for (unsigned short i = 0; i < program->count; i++)
        if (BPF_CLASS(program->code[i].code) == BPF_RET && program->code[i].k == SECCOMP_RET_USER_NOTIF)
            return true;
    return false;
}

/* The newest of its filters that notifies; false: it has none. */
static bool find_program(pid_t tid, struct program *program)
{
    for (long i = 0; i < FILTERS_MAX; i++) {
        long count = ptrace((enum __ptrace_request)PTRACE_SECCOMP_GET_FILTER, tid, i, NULL);

        if (count <= 0)
            return false;
        program->code = calloc((size_t)count, sizeof *program->code);
        program->count = (unsigned short)count;
        if (program->code &&
            ptrace((enum __ptrace_request)PTRACE_SECCOMP_GET_FILTER, tid, i, program->code) == count &&
            notifies(program))
            return true;
        free(program->code);
    }
    return false;
}

/* The listener's number in the process. All threads get the filter, or none. */
static long install(const struct tracee *tracee, const struct program *program)
{
    static const unsigned int flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC |
                                      SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
    size_t code_bytes = program->count * sizeof *program->code;
    uint64_t at = tracee_room(tracee, sizeof(struct sock_fprog) + code_bytes);
    struct sock_fprog head = {
        .len = program->count,
        .filter = (struct sock_filter *)(uintptr_t)(at + sizeof head),
    };

    if (tracee_write(tracee, at, &head, sizeof head) ||
        tracee_write(tracee, at + sizeof head, program->code, code_bytes))
        return -EFAULT;
    return tracee_call(tracee, SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, at);
}

static int fetch(const struct tracee *tracee, long theirs)
{
    int pidfd = (int)syscall(SYS_pidfd_open, tracee->tid, 0);
    int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, (int)theirs, 0);

    if (pidfd >= 0)
        close(pidfd);
    tracee_call(tracee, SYS_close, (uint64_t)theirs, 0, 0);
    return fd;
}

static int no_listener(pid_t pid, long error, struct error *why)
{
    if (error == -EACCES)
        return fail(why, EACCES, "create the container with no_new_privs, then checkpoint it anew",
                    "process %d may gain privileges, so that it cannot be given a filter again", pid);
    if (error == -ESRCH)
        return fail(why, ESRCH, "create the container anew",
                    "the threads of process %d have different filters", pid);
    return fail(why, (int)-error, "create the container anew", "process %d takes no listener: %s", pid,
                strerror((int)-error));
}

/* The listener, or a negative errno with why filled. */
static int listener_of(pid_t pid, struct error *why)
{
    struct tracee tracee;
    struct program program;
    int error = tracee_seize(&tracee, pid), fd = -1;
    long theirs;

    if (error)
        return fail(why, -error, "run mgpu-runtime as root, outside of containers",
                    "process %d cannot be traced: %s", pid, strerror(-error));
    if (find_program(pid, &program)) {
        theirs = install(&tracee, &program);
        fd = theirs < 0 ? no_listener(pid, theirs, why) : fetch(&tracee, theirs);
        if (theirs >= 0 && fd < 0)
            fd = fail(why, errno, "create the container anew", "the listener of process %d is lost", pid);
        fwrite(program.code, sizeof *program.code, program.count, stdout);
        free(program.code);
    } else {
        fd = fail(why, ENOENT, "checkpoint a container that mgpu-runtime made",
                  "process %d has no filter of mgpu's in its checkpoint", pid);
    }
    tracee_leave(&tracee);
    return fd;
}

static int send_all(const char *path, int listener, const char *message, size_t bytes, struct error *why)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char control[CMSG_SPACE(sizeof listener)] = {0};
    struct iovec part = {(void *)(uintptr_t)message, bytes};
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error;

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof listener);
    memcpy(CMSG_DATA(head), &listener, sizeof listener);
    strncpy(at.sun_path, path, sizeof at.sun_path - 1);
    error = to < 0 || connect(to, (struct sockaddr *)&at, sizeof at) ||
            sendmsg(to, &packet, MSG_NOSIGNAL) != (ssize_t)bytes;
    if (error)
        fail(why, errno, "start mgpu-holder", "the listener cannot be sent to %s: %s", path, strerror(errno));
    if (to >= 0)
        close(to);
    return error ? -EIO : 0;
}

int main(int argc, char **argv)
{
    static char message[MESSAGE_BYTES];
    size_t bytes = fread(message, 1, sizeof message, stdin);
    struct error why;
    int listener = -1, error = 0;

    if (argc != 3 || !bytes) {
        fprintf(stderr, "usage: mgpu-listener PID SOCKET <MESSAGE\n");
        return 2;
    }
    listener = listener_of(atoi(argv[1]), &why);
    if (listener >= 0)
        error = send_all(argv[2], listener, message, bytes, &why);
    if (listener >= 0 && !error)
        return 0;
    report(&why, NULL);
    return 1;
}

#include "checkpoint.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NONE = -1, PATH_BYTES = 64 };

/* A process's thread for checkpoints. */
struct thread {
    int pid, tid, socket;
};

static bool number_of(const char *text, const char *pattern, int *number)
{
    int end = 0;

    return sscanf(text, pattern, number, &end) == 1 && end && (!text[end] || text[end] == '\n');
}

/* false: there is no such file, or nothing in it. */
static bool read_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "re");
    bool there = file && fgets(line, bytes, file);

    if (file)
        fclose(file);
    return there;
}

/* Of any of its threads, as cuda-checkpoint takes them. 0: there is no such process. */
static int process_of(int tid)
{
    char path[PATH_BYTES], line[256];
    FILE *file;
    int pid = 0;

    snprintf(path, sizeof path, "/proc/%d/status", tid);
    file = fopen(path, "re");
    while (file && !pid && fgets(line, sizeof line, file))
        sscanf(line, "Tgid: %d", &pid);
    if (file)
        fclose(file);
    return pid;
}

static bool is_the_thread(struct thread *thread, const char *entry)
{
    char path[PATH_BYTES], name[32];

    if (!number_of(entry, "%d%n", &thread->tid))
        return false;
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", thread->pid, thread->tid);
    return read_line(path, name, sizeof name) && number_of(name, CHECKPOINT_THREAD "%n", &thread->socket);
}

static CUresult find(int pid, struct thread *thread)
{
    char path[PATH_BYTES];
    bool found = false;
    struct dirent *entry;
    DIR *tasks;

    *thread = (struct thread){.pid = pid > 0 ? process_of(pid) : 0};
    snprintf(path, sizeof path, "/proc/%d/task", thread->pid);
    tasks = thread->pid ? opendir(path) : NULL;
    if (!tasks)
        return CUDA_ERROR_INVALID_VALUE;
    while (!found && (entry = readdir(tasks)))
        found = is_the_thread(thread, entry->d_name);
    closedir(tasks);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

/* A copy of the end that callers write to, or NONE. */
static int fetch(const struct thread *thread)
{
    int pidfd, fd;

    if (thread->pid == getpid())
        return dup(checkpoint_socket());
    pidfd = (int)syscall(SYS_pidfd_open, thread->pid, 0);
    if (pidfd < 0)
        return NONE;
    fd = (int)syscall(SYS_pidfd_getfd, pidfd, thread->socket, 0);
    close(pidfd);
    return fd;
}

static bool post(int fd, const struct checkpoint_request *request, int answer_end)
{
    char control[CMSG_SPACE(sizeof answer_end)] = {0};
    struct iovec part = {(void *)(uintptr_t)request, sizeof *request};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof answer_end);
    memcpy(CMSG_DATA(header), &answer_end, sizeof answer_end);
    return sendmsg(fd, &message, MSG_NOSIGNAL) == sizeof *request;
}

/* A process that ends meanwhile hangs up. */
static CUresult wait_for_answer(int fd, struct checkpoint_reply *reply)
{
    ssize_t bytes;

    do
        bytes = recv(fd, reply, sizeof *reply, 0);
    while (bytes < 0 && errno == EINTR);
    return bytes == sizeof *reply ? (CUresult)reply->result : CUDA_ERROR_INVALID_VALUE;
}

static CUresult request(int pid, const struct checkpoint_request *wanted, struct checkpoint_reply *reply)
{
    struct thread thread;
    CUresult result = find(pid, &thread);
    int fd = result ? NONE : fetch(&thread), ends[2];
    bool posted;

    if (result)
        return result;
    if (fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        result = errno == ESRCH ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM;
        if (fd >= 0)
            close(fd);
        return result;
    }
    posted = post(fd, wanted, ends[1]);
    close(ends[1]);
    result = posted ? wait_for_answer(ends[0], reply) : CUDA_ERROR_NOT_INITIALIZED;
    close(ends[0]);
    close(fd);
    return result;
}

static CUresult do_step(int pid, const struct checkpoint_request *wanted)
{
    struct checkpoint_reply reply;

    return request(pid, wanted, &reply);
}

static bool is_zero(const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (((const char *)bytes)[i])
            return false;
    return true;
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    struct thread thread;
    CUresult result = tid ? find(pid, &thread) : CUDA_ERROR_INVALID_VALUE;

    if (!result)
        *tid = thread.tid;
    return result;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    struct checkpoint_request wanted = {.op = CHECKPOINT_STATE};
    struct checkpoint_reply reply;
    CUresult result = state ? request(pid, &wanted, &reply) : CUDA_ERROR_INVALID_VALUE;

    if (!result)
        *state = (CUprocessState)reply.state;
    return result;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    struct checkpoint_request wanted = {.op = CHECKPOINT_LOCK};

    if (args && (args->reserved0 || !is_zero(args->reserved1, sizeof args->reserved1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (args)
        wanted.timeout_ms = args->timeoutMs;
    return do_step(pid, &wanted);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    return do_step(pid, &(struct checkpoint_request){.op = CHECKPOINT_CHECKPOINT});
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    struct checkpoint_request wanted = {.op = CHECKPOINT_RESTORE};

    if (args && (!is_zero(args->reserved, sizeof args->reserved) || args->reserved1 ||
                 args->gpuPairsCount > RM_MAX_CARDS || (args->gpuPairsCount && !args->gpuPairs)))
        return CUDA_ERROR_INVALID_VALUE;
    if (args && args->gpuPairsCount) {
        wanted.pair_count = args->gpuPairsCount;
        memcpy(wanted.pairs, args->gpuPairs, wanted.pair_count * sizeof *wanted.pairs);
    }
    return do_step(pid, &wanted);
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    return do_step(pid, &(struct checkpoint_request){.op = CHECKPOINT_UNLOCK});
}

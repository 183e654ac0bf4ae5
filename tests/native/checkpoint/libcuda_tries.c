/* A libcuda that a tenant has taken over: each state of a process that it is asked for is a try to get at the
 * node. pid N is the Nth try; state 0 ("running") says that it came through, an error that it did not. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char why[64];

static void *nothing(void *of)
{
    return of;
}

static int child(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    return pid < 0 ? -1 : waitpid(pid, NULL, 0) > 0 ? 0 : -1;
}

static int thread(void)
{
    pthread_t made;

    return pthread_create(&made, NULL, nothing, NULL) || pthread_join(made, NULL) ? -1 : 0;
}

static int descriptor(int fd)
{
    return fd < 0 ? -1 : close(fd);
}

static int capability(int number)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data) < 0)
        return -1;
    return data[number / 32].permitted >> number % 32 & 1 ? 0 : -1;
}

static int try(int number)
{
    char *const none[] = {NULL};
    int file;

    switch (number) {
    case 1:
        return execve("/bin/true", none, none);
    case 2:
        return child();
    case 3:
        return descriptor(open("/tmp/libcuda-tries", O_WRONLY | O_CREAT, 0600));
    case 4:
        return descriptor(open("/tmp", O_WRONLY | O_TMPFILE, 0600));
    case 5:
        return mkdir("/tmp/libcuda-tries", 0700);
    case 6:
        return mount("none", "/mnt", "tmpfs", 0, NULL);
    case 7:
        return unshare(CLONE_NEWUSER);
    case 8:
        return chmod("/tmp", 01777);
    case 9:
        return descriptor(socket(AF_INET, SOCK_STREAM, 0));
    case 10:
        return capability(CAP_SYS_ADMIN);
    case 11:
        return capability(CAP_SYS_MODULE);
    case 12:
        return setresuid(1, 1, 1);
    case 13:
        return (int)syscall(SYS_bpf, 0, NULL, 0) < 0 && errno != EPERM ? 0 : -1;
    /* What moving memory takes. */
    case 50:
        return thread();
    case 51:
        return descriptor(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    case 52:
        return descriptor(open("/dev/null", O_RDWR));
    case 53:
        return descriptor((int)syscall(SYS_memfd_create, "m", 0));
    case 54:
        return capability(CAP_SYS_PTRACE);
    case 55:
        file = (int)syscall(SYS_pidfd_open, getppid(), 0);
        return descriptor(file < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, file, 0, 0));
    case 56:
        return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -1;
    }
    return -1;
}

int cuCheckpointProcessGetState(int pid, int *state)
{
    *state = 0;
    if (try(pid) == 0)
        return 0;
    snprintf(why, sizeof(why), "%d", errno);
    return 999;
}

int cuCheckpointProcessLock(int pid, void *args)
{
    return pid < 0 || args == NULL;
}

int cuCheckpointProcessCheckpoint(int pid, void *args)
{
    return pid < 0 || args;
}

int cuCheckpointProcessRestore(int pid, void *args)
{
    return pid < 0 || args;
}

int cuCheckpointProcessUnlock(int pid, void *args)
{
    return pid < 0 || args;
}

int cuGetErrorName(int error, const char **name)
{
    *name = "REFUSED";
    return error < 0;
}

int cuGetErrorString(int error, const char **text)
{
    *text = why;
    return error < 0;
}

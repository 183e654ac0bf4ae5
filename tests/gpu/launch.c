/* Runs a program whose calls on NVIDIA's nodes are notified, without a container: for experiments, and where
 * no container can be made. The same set as oci_specs/seccomp/notified.py, given as cubes.
 *
 *   launch SOCKET_FD MASK:DATUM... -- PROGRAM ARGUMENTS...
 *   launch /path/of/a/socket STATE MASK:DATUM... -- PROGRAM ARGUMENTS...
 *
 * The listener goes over the socket: by itself, or, as an OCI runtime does it, with STATE, a file of JSON.
 * The program has no CAP_SYS_ADMIN, SYS_NICE and PERFMON: the driver would let it do what containers may
 * not. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { CUBES = 120, STATE_BYTES = 65536 };

static void die(const char *what)
{
    fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void drop_capabilities(void)
{
    static const int dropped[] = {CAP_SYS_ADMIN, CAP_SYS_NICE, 38 /* CAP_PERFMON */};
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data))
        die("capget");
    for (size_t i = 0; i < sizeof(dropped) / sizeof(*dropped); i++) {
        uint32_t bit = 1u << dropped[i] % 32;

        prctl(PR_CAPBSET_DROP, dropped[i], 0, 0, 0);
        data[dropped[i] / 32].effective &= ~bit;
        data[dropped[i] / 32].permitted &= ~bit;
        data[dropped[i] / 32].inheritable &= ~bit;
    }
    if (syscall(SYS_capset, &head, data))
        die("capset");
}

static int install(char *const *cube, int cubes)
{
    struct sock_filter f[4 + 4 * CUBES + 2], *p = f;
    struct sock_fprog prog = {.filter = f};
    unsigned int mask, datum;

    *p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    *p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 1, 0);
    *p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    for (int i = 0; i < cubes; i++) {
        if (sscanf(cube[i], "%x:%x", &mask, &datum) != 2)
            die(cube[i]);
        *p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]));
        *p++ = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask);
        *p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, datum, 0, 1);
        *p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    }
    *p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    prog.len = (unsigned short)(p - f);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        die("no_new_privs");
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
}

static void pass_on(int to, int listener, const void *text, size_t bytes)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec in = {(void *)(uintptr_t)text, bytes};
    struct msghdr msg = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &listener, sizeof(int));
    if (sendmsg(to, &msg, 0) < 0)
        die("sendmsg");
}

static int dial(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strncpy(at.sun_path, path, sizeof(at.sun_path) - 1);
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)))
        die(path);
    return fd;
}

int main(int argc, char **argv)
{
    static char state[STATE_BYTES];
    int first = 2, last, to, listener, fd;
    ssize_t bytes = 1;

    if (argc < 4)
        return 2;
    if (strchr(argv[1], '/')) {
        fd = open(argv[first++], O_RDONLY | O_CLOEXEC);
        bytes = fd < 0 ? -1 : read(fd, state, sizeof(state));
        if (bytes <= 0)
            die(argv[2]);
        to = dial(argv[1]);
    } else {
        to = atoi(argv[1]);
        state[0] = '.';
    }
    for (last = first; last < argc && strcmp(argv[last], "--"); last++)
        ;
    if (last + 1 >= argc || last - first > CUBES)
        return 2;
    drop_capabilities();
    listener = install(argv + first, last - first);
    if (listener < 0)
        die("seccomp");
    pass_on(to, listener, state, (size_t)bytes);
    close(listener);
    close(to);
    execvp(argv[last + 1], argv + last + 1);
    die(argv[last + 1]);
}

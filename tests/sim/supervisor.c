/* Plays the mediator for the simulated libraries' own tests, with nothing of a mediator's duties: runs a
 * command whose ioctls are caught by seccomp, and those on NVIDIA's nodes forwarded unchanged to the
 * simulated card.
 *
 *   supervisor CARD_SOCKET CARDS COMMAND...
 *
 * The command gets a mount namespace of its own with NVIDIA's names under /dev, all of them null devices. */
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include "../../sim/abi/protocol.h"
#include "../../sim/abi/uvm_sizes.h"
#include "../../sim/card/profiles.h"
#include "../programs/ioctl_filter.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES_MAX = 65536, NOTIFY_SYNC_WAKE_UP = 1 };
#define NOTIFY_SET_FLAGS SECCOMP_IOW(4, __u64)

static struct {
    dev_t dev;
    ino_t ino;
    uint64_t id;
} files[FILES_MAX];
static size_t file_count;
static int card;
static struct rm_table table;

static void die(const char *what)
{
    fprintf(stderr, "supervisor: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void make_nodes(int cards)
{
    static const char *const plain[] = {"nvidiactl", "nvidia-uvm", "null"};
    char path[64];

    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755"))
        die("mount namespace");
    umask(0);
    for (int i = 0; i < cards + 3; i++) {
        if (i < 3)
            snprintf(path, sizeof path, "/dev/%s", plain[i]);
        else
            snprintf(path, sizeof path, "/dev/nvidia%d", i - 3);
        mknod(path, S_IFCHR | 0666, makedev(1, 3));
    }
    mknod("/dev/urandom", S_IFCHR | 0666, makedev(1, 9));
    mkdir("/dev/shm", 01777);
}

/* The fd that came along, or -1. */
static int receive(int socket, void *data, size_t bytes, ssize_t *received)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {data, bytes};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header;
    int fd = -1;

    *received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    header = *received > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header)
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

/* A card that is gone fails every call, as one that has fallen off the bus. */
static int ask_card(struct sim_request *request, struct sim_reply *reply)
{
    size_t bytes = offsetof(struct sim_request, payload) + request->outer_bytes + request->params_bytes;
    ssize_t received;
    int fd;

    if (send(card, request, bytes, MSG_NOSIGNAL) >= 0) {
        fd = receive(card, reply, sizeof *reply, &received);
        if (received >= (ssize_t)offsetof(struct sim_reply, payload))
            return fd;
    }
    *reply = (struct sim_reply){.error = EIO};
    return -1;
}

static pid_t tgid_of(pid_t tid)
{
    char path[64], line[256];
    int tgid = tid;
    FILE *status;

    snprintf(path, sizeof path, "/proc/%d/status", tid);
    status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "Tgid: %d", &tgid) == 1)
            break;
    if (status)
        fclose(status);
    return tgid;
}

/* What node a path names; -1 none of ours. */
static int node_of(const char *name, uint32_t *minor)
{
    char rest;

    *minor = 0;
    if (!strcmp(name, "/dev/nvidiactl"))
        return SIM_NODE_CTL;
    if (!strcmp(name, "/dev/nvidia-uvm"))
        return SIM_NODE_UVM;
    return sscanf(name, "/dev/nvidia%u%c", minor, &rest) == 1 ? SIM_NODE_CARD : -1;
}

/* The card's file behind a caller's descriptor, opened and put in its place at first use; 0 = not ours. */
static uint64_t file_of(int listener, const struct seccomp_notif *notif, pid_t tgid, int fd)
{
    static struct sim_request request;
    static struct sim_reply reply;
    struct seccomp_notif_addfd addfd = {
        .id = notif->id, .flags = SECCOMP_ADDFD_FLAG_SETFD, .newfd = (uint32_t)fd};
    char path[64], name[64] = "";
    struct stat st;
    int node;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", notif->pid, fd);
    if (stat(path, &st))
        return 0;
    /* Newest first: an inode number comes back once its file is gone. */
    for (size_t i = file_count; i--;)
        if (files[i].ino == st.st_ino && files[i].dev == st.st_dev)
            return files[i].id;
    if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3) || readlink(path, name, sizeof name - 1) < 0)
        return 0;
    request = (struct sim_request){.op = SIM_OPEN, .tgid = tgid};
    node = node_of(name, &request.minor);
    if (node < 0)
        return 0;
    request.node = (uint32_t)node;
    addfd.srcfd = (uint32_t)ask_card(&request, &reply);
    addfd.newfd_flags = O_CLOEXEC;
    if (reply.error || ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &addfd) < 0 || fstat((int)addfd.srcfd, &st))
        return 0;
    close((int)addfd.srcfd);
    if (file_count == FILES_MAX)
        die("too many files");
    files[file_count].dev = st.st_dev;
    files[file_count].ino = st.st_ino;
    files[file_count++].id = reply.file;
    return reply.file;
}

static bool copy(pid_t pid, void *local, uint64_t remote, size_t bytes, bool in)
{
    struct iovec here = {local, bytes}, there = {(void *)(uintptr_t)remote, bytes};

    if (!bytes)
        return true;
    return (in ? process_vm_readv : process_vm_writev)(pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* Bare numbers, which do not say how large their parameters are. */
static bool is_uvm(uint32_t cmd)
{
    return _IOC_TYPE(cmd) != 'F';
}

static void find_params(const struct sim_request *request, uint64_t *params, uint32_t *bytes)
{
    const void *outer = request->payload;

    *params = 0;
    *bytes = 0;
    if (is_uvm(request->cmd))
        return;
    if (RM_NR(request->cmd) == NV_ESC_RM_CONTROL) {
        *params = ((const struct rm_control *)outer)->params;
        *bytes = ((const struct rm_control *)outer)->params_size;
    } else if (RM_NR(request->cmd) == NV_ESC_RM_ALLOC && request->outer_bytes == sizeof(struct rm_alloc)) {
        *params = ((const struct rm_alloc *)outer)->params;
        *bytes = ((const struct rm_alloc *)outer)->params_size;
    }
}

static bool closes_at_exec(pid_t pid, int fd)
{
    char path[64], line[64];
    unsigned int flags = 0;
    FILE *info;

    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", pid, fd);
    info = fopen(path, "re");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "flags: %o", &flags) == 1)
            break;
    if (info)
        fclose(info);
    return flags & O_CLOEXEC;
}

/* Puts what the card maps in the place of the caller's fd. 0 or a negative errno. */
static int place_mapping(int listener, const struct seccomp_notif *notif, const struct rm_map_memory *map,
                         int mapping)
{
    struct seccomp_notif_addfd addfd = {
        .id = notif->id,
        .flags = SECCOMP_ADDFD_FLAG_SETFD,
        .srcfd = (uint32_t)mapping,
        .newfd = (uint32_t)map->fd,
        .newfd_flags = closes_at_exec((pid_t)notif->pid, map->fd) ? O_CLOEXEC : 0,
    };
    int result = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &addfd) < 0 ? -errno : 0;

    close(mapping);
    return result;
}

/* 0 or a negative errno. */
static int forward(int listener, const struct seccomp_notif *notif, uint64_t file, pid_t tgid)
{
    static struct sim_request request;
    static struct sim_reply reply;
    uint64_t params;
    int mapping, error;

    request = (struct sim_request){
        .op = SIM_IOCTL, .file = file, .tgid = tgid, .cmd = (uint32_t)notif->data.args[1]};
    request.outer_bytes = is_uvm(request.cmd) ? uvm_size_of(&table, request.cmd).bytes : RM_SIZE(request.cmd);
    if (!copy(notif->pid, request.payload, notif->data.args[2], request.outer_bytes, true))
        return -EFAULT;
    find_params(&request, &params, &request.params_bytes);
    if (request.params_bytes > SIM_PAYLOAD_MAX - request.outer_bytes)
        return -EINVAL;
    if (!copy(notif->pid, request.payload + request.outer_bytes, params, request.params_bytes, true))
        return -EFAULT;
    if (!is_uvm(request.cmd) && RM_NR(request.cmd) == NV_ESC_REGISTER_FD)
        request.aux_file = file_of(listener, notif, tgid, ((struct rm_register_fd *)request.payload)->ctl_fd);
    if (!is_uvm(request.cmd) && RM_NR(request.cmd) == NV_ESC_RM_MAP_MEMORY)
        request.aux_file = file_of(listener, notif, tgid, ((struct rm_map_memory *)request.payload)->fd);
    mapping = ask_card(&request, &reply);
    if (mapping >= 0) {
        error = place_mapping(listener, notif, (const struct rm_map_memory *)reply.payload, mapping);
        if (error)
            return error;
    }
    if (!copy(notif->pid, reply.payload, notif->data.args[2], reply.outer_bytes, false) ||
        !copy(notif->pid, reply.payload + reply.outer_bytes, params, reply.params_bytes, false))
        return -EFAULT;
    return -reply.error;
}

static void answer(int listener)
{
    struct seccomp_notif notif = {0};
    struct seccomp_notif_resp response = {0};
    uint64_t file;
    pid_t tgid;

    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notif))
        return;
    tgid = tgid_of(notif.pid);
    file = file_of(listener, &notif, tgid, (int)notif.data.args[0]);
    response.id = notif.id;
    if (file)
        response.error = forward(listener, &notif, file, tgid);
    else
        response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int pair[2], listener, status;
    char byte = 0;
    pid_t child;

    if (argc < 4 || rm_table_pick(SIM_DRIVER_VERSION, &table))
        return 125;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
    card = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(card, (struct sockaddr *)&address, sizeof address))
        die(argv[1]);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        die("socketpair");
    child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        make_nodes(atoi(argv[2]));
        listener = ioctl_filter(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
        /* It closes at exec: the parent takes its own first. */
        if (listener < 0 || write(pair[1], &listener, sizeof listener) < 0 || read(pair[1], &byte, 1) != 1)
            die("filter");
        execvp(argv[3], argv + 3);
        die(argv[3]);
    }
    close(pair[1]);
    if (read(pair[0], &listener, sizeof listener) != sizeof listener)
        die("listener");
    listener = (int)syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, child, 0), listener, 0);
    if (listener < 0 || write(pair[0], &byte, 1) != 1)
        die("listener");
    ioctl(listener, NOTIFY_SET_FLAGS, NOTIFY_SYNC_WAKE_UP);
    for (;;) {
        struct pollfd poll_listener = {.fd = listener, .events = POLLIN};

        if (poll(&poll_listener, 1, -1) < 0 || !(poll_listener.revents & POLLIN))
            break;
        answer(listener);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

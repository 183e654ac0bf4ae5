/* Gives open files of the driver to another container, through a socket in a folder that both have.
 * Usage: hand_over send PATH      makes memory, sends its control file, one that was never used, a card's and
 * the memory of a channel; prints "sent CLIENT", and stands still hand_over receive PATH CLIENT calls on what
 * came, prints "RESULT" of each call in one line, and stands still */
#include "../gpu.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { SENT = 4 };

static struct sockaddr_un place(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    return at;
}

static void give(int to, const int *fds)
{
    char room[CMSG_SPACE(SENT * sizeof(int))] = {0}, byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);

    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(SENT * sizeof(int));
    memcpy(CMSG_DATA(h), fds, SENT * sizeof(int));
    must(sendmsg(to, &m, 0) == 1, "sendmsg");
}

static void take(int from, int *fds)
{
    char room[CMSG_SPACE(SENT * sizeof(int))], byte;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};

    must(recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m), "recvmsg");
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), SENT * sizeof(int));
}

static void send_all(const char *path)
{
    struct sockaddr_un at = place(path);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), to, fds[SENT];
    struct work w;
    struct gpu g;

    gpu_open(&g);
    must(rm_memory(g.ctl, g.client, FIRST_MEMORY, 8 * MIB) == NV_OK, "memory");
    must(work_make(&g, &w, 0x100) == NV_OK, "group");
    must(!bind(server, (struct sockaddr *)&at, sizeof(at)) && !listen(server, 1), path);
    say("sent %u", g.client);
    to = accept(server, NULL, NULL);
    fds[0] = g.ctl;
    fds[1] = open_node("/dev/nvidiactl");
    fds[2] = g.card;
    fds[3] = w.fd;
    give(to, fds);
    hold();
}

static void receive_all(const char *path, uint32_t client)
{
    struct sockaddr_un at = place(path);
    int from = socket(AF_UNIX, SOCK_STREAM, 0), fds[SENT];
    struct rm_sys_params first = {0};

    must(!connect(from, (struct sockaddr *)&at, sizeof(at)), path);
    take(from, fds);
    say("%lld %lld %lld %d %d %d", (long long)rm_memory(fds[0], client, FIRST_MEMORY + 1, MIB),
        (long long)rm_alloc(fds[0], 0, 0, 0, NV01_ROOT_CLIENT, NULL, 0),
        (long long)rm_free(fds[0], client, client),
        ioctl(fds[1], RM_CMD(NV_ESC_SYS_PARAMS, sizeof(first)), &first) ? -errno : 0,
        ioctl(fds[2], RM_CMD(NV_ESC_SYS_PARAMS, sizeof(first)), &first) ? -errno : 0,
        ftruncate(fds[3], 0) ? -errno : 0);
    hold();
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "send"))
        send_all(argv[2]);
    if (argc > 3 && !strcmp(argv[1], "receive"))
        receive_all(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
    return 2;
}

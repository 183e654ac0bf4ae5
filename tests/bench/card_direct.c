/* What the simulated driver takes by itself: an allocation and its free, 64 KiB, asked of the card's process by the program
 * that wants them, with nobody in between. Usage: card_direct SOCKET N. Prints {"p50_ns": ...} of the pair. */
#include "../../native_sched/boundary/rm_abi.h"
#include "../../sim/card/protocol.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int line;
static uint64_t file;
static struct sim_request request;
static struct sim_reply reply;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void ask(size_t payload)
{
    size_t bytes = offsetof(struct sim_request, payload) + payload;

    if (send(line, &request, bytes, 0) < 0 || recv(line, &reply, sizeof(reply), 0) < 0 || reply.error)
        exit(1);
}

/* The descriptor that comes with the answer is the file: as long as we have it. */
static void open_file(void)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec in = {&reply, sizeof(reply)};
    struct msghdr msg = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

    request = (struct sim_request){.op = SIM_OPEN, .tgid = getpid()};
    if (send(line, &request, offsetof(struct sim_request, payload), 0) < 0 || recvmsg(line, &msg, 0) < 0)
        exit(1);
    file = reply.file;
}

/* The outer struct after the call is in reply.payload. */
static void call(uint32_t nr, const void *outer, uint32_t bytes, const void *params, uint32_t params_bytes)
{
    request.op = SIM_IOCTL;
    request.cmd = RM_CMD(nr, bytes);
    request.file = file;
    request.tgid = getpid();
    request.outer_bytes = bytes;
    request.params_bytes = params_bytes;
    memcpy(request.payload, outer, bytes);
    if (params)
        memcpy(request.payload + bytes, params, params_bytes);
    ask(bytes + params_bytes);
}

static uint32_t alloc(uint32_t client, uint32_t parent, uint32_t handle, uint32_t class_id,
                      const void *params, uint32_t bytes)
{
    struct rm_alloc a = {.root = client, .parent = parent, .handle = handle, .class_id = class_id};

    a.params_size = bytes;
    call(RM_ESC_ALLOC, &a, sizeof(a), params, bytes);
    memcpy(&a, reply.payload, sizeof(a));
    if (a.status)
        exit(2);
    return a.handle;
}

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct rm_device device = {.id = 0};
    struct rm_memory memory = {.size = 65536, .alignment = 65536};
    int n = argc > 2 ? atoi(argv[2]) : 0;
    uint64_t *took = calloc((size_t)n + 1, sizeof(*took)), start;
    uint32_t client;

    if (!n)
        return 2;
    strncpy(at.sun_path, argv[1], sizeof(at.sun_path) - 1);
    line = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(line, (struct sockaddr *)&at, sizeof(at)))
        return 1;
    open_file();
    client = alloc(0, 0, 0, RM_CLASS_ROOT_CLIENT, NULL, 0);
    alloc(client, client, 0xd0, RM_CLASS_DEVICE, &device, sizeof(device));
    for (int i = 0; i < n; i++) {
        struct rm_free f = {.root = client, .parent = 0xd0, .handle = 0xd2};

        start = now_ns();
        alloc(client, 0xd0, 0xd2, RM_CLASS_MEMORY_LOCAL_USER, &memory, sizeof(memory));
        call(RM_ESC_FREE, &f, sizeof(f), NULL, 0);
        took[i] = now_ns() - start;
    }
    qsort(took, (size_t)n, sizeof(*took), compare);
    printf("{\"p50_ns\": %llu}\n", (unsigned long long)took[n / 2]);
    return 0;
}

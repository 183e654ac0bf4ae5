/* RM calls as a program makes them that has no library of the driver's and of ours. A call's result is RM's
 * status, or a negative errno where ioctl() itself failed. */
#ifndef PROGRAMS_RM_H
#define PROGRAMS_RM_H
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICE = 0xd0, SUBDEVICE = 0xd1, FIRST_MEMORY = 0x1000 };
enum { OWNER = 1 }; /* of memory: RM takes any but 0 and a few of its own */
enum { IN_HOST = RM_MEMORY_LOCATION_HOST << RM_MEMORY_ATTR_LOCATION_SHIFT };
enum { MIB = 1 << 20 };

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
    fflush(stdout);
}

static inline void must(bool good, const char *what)
{
    if (good)
        return;
    say("%s: %s", what, strerror(errno));
    _exit(1);
}

/* Until standard input ends or has a line; true with a line. */
static inline bool told(void)
{
    char line[64];

    return fgets(line, sizeof(line), stdin);
}

/* Stands still, with all it has, until it is killed. */
static inline void hold(void)
{
    for (;;)
        pause();
}

static inline int64_t rm_alloc_as(unsigned long cmd, int fd, struct rm_alloc *a)
{
    if (ioctl(fd, cmd, a))
        return -errno;
    return a->status;
}

/* Of that handle; 0: RM chooses it. */
static inline int64_t rm_alloc_named(int fd, uint32_t client, uint32_t parent, uint32_t *handle,
                                     uint32_t class_id, void *params, uint32_t bytes)
{
    struct rm_alloc a = {
        .root = client,
        .parent = parent,
        .handle = *handle,
        .class_id = class_id,
        .params = (uintptr_t)params,
        .params_size = bytes,
    };
    int64_t status = rm_alloc_as(RM_CMD(NV_ESC_RM_ALLOC, sizeof(a)), fd, &a);

    *handle = a.handle;
    return status;
}

static inline int64_t rm_alloc(int fd, uint32_t client, uint32_t parent, uint32_t handle, uint32_t class_id,
                               void *params, uint32_t bytes)
{
    return rm_alloc_named(fd, client, parent, &handle, class_id, params, bytes);
}

static inline int64_t rm_free(int fd, uint32_t client, uint32_t handle)
{
    struct rm_free f = {.root = client, .parent = client, .handle = handle};

    if (ioctl(fd, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f))
        return -errno;
    return f.status;
}

static inline int64_t rm_control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void *params,
                                 uint32_t bytes)
{
    struct rm_control c = {
        .client = client,
        .object = object,
        .cmd = cmd,
        .params = (uintptr_t)params,
        .params_size = bytes,
    };

    if (ioctl(fd, RM_CMD(NV_ESC_RM_CONTROL, sizeof(c)), &c))
        return -errno;
    return c.status;
}

static inline int64_t rm_memory(int fd, uint32_t client, uint32_t handle, uint64_t bytes)
{
    struct rm_memory m = {.owner = OWNER, .size = bytes};

    return rm_alloc(fd, client, DEVICE, handle, NV01_MEMORY_LOCAL_USER, &m, sizeof(m));
}

/* RM's number of the card that the device is on. */
static uint32_t card_number __attribute__((unused));

static inline int64_t rm_device(int fd, uint32_t client)
{
    struct rm_device d = {.id = card_number};

    return rm_alloc(fd, client, client, DEVICE, NV01_DEVICE_0, &d, sizeof(d));
}

static inline int open_node(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    must(fd >= 0, path);
    return fd;
}

/* A client of that handle unless it is 0. */
static inline void make_client(int fd, uint32_t *client)
{
    must(rm_alloc_named(fd, *client, 0, client, NV01_ROOT_CLIENT, NULL, 0) == NV_OK, "client");
}

/* A control file with a client and a device. */
static inline int open_client(uint32_t *client)
{
    int fd = open_node("/dev/nvidiactl");

    make_client(fd, client);
    must(rm_device(fd, *client) == NV_OK, "device");
    return fd;
}

/* Without it NVIDIA's nvidia-uvm registers no address space on Linux 6.1. */
static inline void hold_process_memory(int uvm)
{
    int params[2] = {uvm};

    must(!ioctl(open_node("/dev/nvidia-uvm"), UVM_MM_INITIALIZE, params), "nvidia-uvm");
}

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static inline uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(next_random(state) >> 16) % n;
}
#endif

/* Preloaded into a program, NVIDIA's nodes are the simulated card itself: what the program does in a
 * container with a grant it does here with nothing between it and the driver. MGPU_CARD_SOCKET names the
 * card. When the program ends, it and the children that it had meanwhile have made so many calls of the
 * driver:
 * {"calls": N} on stderr. MGPU_DRIVER_VERSION is what the card plays, where that is not the newest: libraries
 * do not say how large the parameters of an allocation are, and RM knows by its version. */
#define _GNU_SOURCE
#include "../../native_sched/nvidia/rm/lists.h"
#include "../../native_sched/nvidia/rm/table.c"
#include "../../sim/abi/uvm_sizes.h"
#include "card_line.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>

enum { FDS_MAX = 1024, BEHIND_MAX = 1 << 16 };

static struct card_line line = {.fd = -1};
static pid_t line_pid;
static uint64_t file_of[FDS_MAX]; /* by descriptor; 0: none of the driver's */
static atomic_ulong *calls;
static struct rm_table table;

__attribute__((constructor)) static void begin(void)
{
    const char *version = getenv("MGPU_DRIVER_VERSION");

    if (rm_table_pick(version ? version : "595", &table))
        exit(1);
    calls = mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

__attribute__((destructor)) static void end(void)
{
    fprintf(stderr, "{\"calls\": %lu}\n", atomic_load(calls));
}

/* One question, one answer: a child needs a line of its own. */
static struct card_line *my_line(void)
{
    if (line_pid != getpid()) {
        line_pid = getpid();
        card_connect(&line, getenv("MGPU_CARD_SOCKET"));
    }
    return &line;
}

static int open_node(const char *path)
{
    enum sim_node node = SIM_NODE_CARD;
    uint32_t minor = 0;
    uint64_t file;
    int fd;

    if (!strcmp(path, "/dev/nvidiactl"))
        node = SIM_NODE_CTL;
    else if (!strcmp(path, "/dev/nvidia-uvm"))
        node = SIM_NODE_UVM;
    else
        minor = (uint32_t)strtoul(path + strlen("/dev/nvidia"), NULL, 10);
    fd = card_open(my_line(), node, minor, &file);

    if (fd >= FDS_MAX)
        exit(1);
    if (fd < 0)
        errno = ENODEV;
    else
        file_of[fd] = file;
    return fd;
}

/* What the libraries are built with: 64-bit offsets. */
int open64(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    mode_t mode;
    va_list rest;

    if (!strncmp(path, "/dev/nvidia", strlen("/dev/nvidia")))
        return open_node(path);
    va_start(rest, flags);
    mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return real(path, flags, mode);
}

int close(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");

    if (fd >= 0 && fd < FDS_MAX)
        file_of[fd] = 0;
    return real(fd);
}

static uint64_t known(int fd)
{
    return fd >= 0 && fd < FDS_MAX ? file_of[fd] : 0;
}

/* A mapping takes the place of the descriptor that the call names. */
static void take(struct rm_map_memory *map, int fd)
{
    if (fd < 0)
        return;
    dup3(fd, map->fd, O_CLOEXEC);
    close(fd);
    file_of[map->fd] = 0;
}

/* The lists that the parameters point to travel behind them, as from mgpud. */
static int call_with_lists(int fd, uint32_t cmd, struct rm_control *c, const struct rm_row *row)
{
    static _Thread_local _Alignas(16) uint8_t behind[BEHIND_MAX];
    uint8_t *params = (uint8_t *)(uintptr_t)c->params;
    uint64_t at[RM_LISTS_MAX];
    uint32_t count, bytes;
    size_t whole = rm_bytes_with_lists(c->cmd, params, c->params_size);
    int e;

    if (whole > sizeof(behind))
        return -EINVAL;
    memcpy(&count, params, sizeof(count));
    memcpy(at, params + RM_LISTS_POINTERS_AT, row->lists * sizeof(*at));
    memcpy(behind, params, c->params_size);
    bytes = count * row->element_bytes;
    for (uint32_t i = 0; i < row->lists; i++)
        if (at[i])
            memcpy(behind + rm_list_at(c->params_size, bytes, i), (void *)(uintptr_t)at[i], bytes);
    e = card_call(my_line(), file_of[fd], 0, cmd, c, behind, (uint32_t)whole, NULL);
    if (e || c->status)
        return e;
    memcpy(params, behind, c->params_size);
    for (uint32_t i = 0; i < row->lists; i++)
        if (at[i])
            memcpy((void *)(uintptr_t)at[i], behind + rm_list_at(c->params_size, bytes, i), bytes);
    return 0;
}

static uint32_t alloc_bytes(uint32_t cmd, const struct rm_alloc *a)
{
    int bytes = rm_class_params(&table, a->class_id);

    if (RM_SIZE(cmd) == sizeof(*a) && a->params_size)
        return a->params_size;
    return bytes > 0 ? (uint32_t)bytes : 0;
}

static int call(int fd, uint32_t cmd, void *outer)
{
    const struct rm_alloc *a = outer;
    const struct rm_control *c = outer;
    uint64_t aux = 0;
    void *params = NULL;
    uint32_t bytes = 0;
    bool maps = RM_NR(cmd) == NV_ESC_RM_MAP_MEMORY;
    int reply = -1, e;

    if (RM_NR(cmd) == NV_ESC_RM_ALLOC && a->params) {
        params = (void *)(uintptr_t)a->params;
        bytes = alloc_bytes(cmd, a);
    } else if (RM_NR(cmd) == NV_ESC_RM_CONTROL && c->params && rm_control_lists_of(c->cmd)) {
        return call_with_lists(fd, cmd, outer, rm_control_lists_of(c->cmd));
    } else if (RM_NR(cmd) == NV_ESC_RM_CONTROL && c->params) {
        params = (void *)(uintptr_t)c->params;
        bytes = c->params_size;
    } else if (RM_NR(cmd) == NV_ESC_REGISTER_FD) {
        aux = known(((const struct rm_register_fd *)outer)->ctl_fd);
    } else if (maps) {
        aux = known(((const struct rm_map_memory *)outer)->fd);
    }
    e = card_call(my_line(), file_of[fd], aux, cmd, outer, params, bytes, maps ? &reply : NULL);
    if (maps)
        take(outer, reply);
    return e;
}

/* Commands of nvidia-uvm are bare numbers, which do not say how large their parameters are. */
static bool is_uvm(uint32_t cmd)
{
    return _IOC_TYPE(cmd) != 'F';
}

static int call_uvm(int fd, uint32_t cmd, void *params)
{
    return card_call_sized(my_line(), file_of[fd], 0, cmd, params, uvm_size_of(&table, cmd).bytes, NULL, 0,
                           NULL);
}

int ioctl(int fd, unsigned long cmd, ...)
{
    int (*real)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    void *argument;
    va_list rest;
    int e;

    va_start(rest, cmd);
    argument = va_arg(rest, void *);
    va_end(rest);
    if (!known(fd))
        return real(fd, cmd, argument);
    atomic_fetch_add(calls, 1);
    /* The system call that it is with a driver in the kernel, where a supervisor may have it notified. */
    real(fd, cmd, argument);
    e = is_uvm((uint32_t)cmd) ? call_uvm(fd, (uint32_t)cmd, argument) : call(fd, (uint32_t)cmd, argument);
    errno = -e;
    return e ? -1 : 0;
}

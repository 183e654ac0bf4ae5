/* Channels made by hand, and kernels put into them: what a program reaches of the card without a system
 * call. */
#ifndef PROGRAMS_GPU_H
#define PROGRAMS_GPU_H
#include "../../sim/abi/channel_abi.h"
#include "rm.h"
#include <sys/mman.h>

enum { DOORBELL = 0xd2, MEMORY_BYTES = 65536, RING_AT = 4096, RING_ENTRIES = 16, WORK_AT = 8192 };

struct gpu {
    int ctl, card, doorbell;
    uint32_t client;
    uint32_t vaspace; /* of its groups; 0: the device's own */
};

/* Its objects: the group, then the memory, then the channel. */
struct work {
    uint32_t group;
    int fd; /* of the memory that USERD and the ring lie in; -1: closed */
    uint8_t *at;
    uint32_t put;
};

/* RM's words for a class that the chip has not: the second is a channel's (seen on an H200). */
static inline bool chip_has_not(int64_t status)
{
    return status == NV_ERR_INVALID_CLASS || status == NV_ERR_NOT_SUPPORTED;
}

static inline int register_card(const struct gpu *g)
{
    struct rm_register_fd reg = {.ctl_fd = g->ctl};
    int card = open_node("/dev/nvidia0");

    must(!ioctl(card, RM_CMD(NV_ESC_REGISTER_FD, sizeof(reg)), &reg), "card");
    return card;
}

/* The fd in whose place the view was put: RM maps host memory through a control file, all else through the
 * card's. */
static inline int map_object(const struct gpu *g, uint32_t object, uint64_t bytes, bool host)
{
    struct rm_map_memory m = {
        .client = g->client,
        .device = DEVICE,
        .memory = object,
        .length = bytes,
        .fd = host ? open_node("/dev/nvidiactl") : register_card(g),
    };

    must(!ioctl(g->ctl, RM_CMD(NV_ESC_RM_MAP_MEMORY, sizeof(m)), &m) && !m.status, "map");
    return m.fd;
}

static inline void make_subdevice(const struct gpu *g)
{
    struct rm_subdevice subdevice = {.id = 0};

    must(!rm_alloc(g->ctl, g->client, DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &subdevice, sizeof(subdevice)),
         "subdevice");
}

static inline void gpu_open(struct gpu *g)
{
    static const uint32_t doorbells[] = {VOLTA_USERMODE_A, TURING_USERMODE_A, AMPERE_USERMODE_A,
                                         HOPPER_USERMODE_A, BLACKWELL_USERMODE_A};
    int64_t status = NV_ERR_INVALID_CLASS;

    *g = (struct gpu){.client = 0};
    g->ctl = open_client(&g->client);
    g->card = register_card(g);
    make_subdevice(g);
    for (size_t i = 0; chip_has_not(status) && i < sizeof(doorbells) / sizeof(*doorbells); i++)
        status = rm_alloc(g->ctl, g->client, SUBDEVICE, DOORBELL, doorbells[i], NULL, 0);
    must(!status, "doorbell");
    g->doorbell = map_object(g, DOORBELL, 4096, false);
}

/* RM's status: below a group, or the device, a channel that has no work yet, of the newest class that the
 * chip has. Its memory's handle is the group's + 1, and its own + 2. */
static inline int64_t work_make_below(const struct gpu *g, struct work *w, uint32_t group, uint32_t engine,
                                      uint32_t parent)
{
    static const uint32_t classes[] = {BLACKWELL_CHANNEL_GPFIFO_B, BLACKWELL_CHANNEL_GPFIFO_A,
                                       HOPPER_CHANNEL_GPFIFO_A,    AMPERE_CHANNEL_GPFIFO_A,
                                       TURING_CHANNEL_GPFIFO_A,    VOLTA_CHANNEL_GPFIFO_A};
    struct rm_memory memory = {.owner = OWNER, .size = MEMORY_BYTES, .attr = IN_HOST};
    struct rm_channel channel = {
        .gpfifo_offset = RING_AT,
        .gpfifo_entries = RING_ENTRIES,
        .userd_memory = {group + 1},
        .engine_type = engine,
    };
    struct rm_tsg_schedule enable = {.enable = 1};
    int64_t status;

    *w = (struct work){.group = group, .fd = -1};
    status = rm_alloc(g->ctl, g->client, DEVICE, group + 1, NV01_MEMORY_SYSTEM, &memory, sizeof(memory));
    if (status)
        return status;
    for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
        status = rm_alloc(g->ctl, g->client, parent, group + 2, classes[i], &channel, sizeof(channel));
        if (!chip_has_not(status))
            break;
    }
    if (status)
        return status;
    if (parent == group)
        rm_control(g->ctl, g->client, group, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &enable, sizeof(enable));
    else
        rm_control(g->ctl, g->client, group + 2, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, &enable, sizeof(enable));
    w->fd = map_object(g, group + 1, MEMORY_BYTES, true);
    w->at = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
    must(w->at != MAP_FAILED, "mmap");
    return NV_OK;
}

/* The same with a group for that engine. */
static inline int64_t work_make_on(const struct gpu *g, struct work *w, uint32_t group, uint32_t engine)
{
    struct rm_channel_group tsg = {.engine_type = engine, .vaspace = g->vaspace};
    int64_t status = rm_alloc(g->ctl, g->client, DEVICE, group, KEPLER_CHANNEL_GROUP_A, &tsg, sizeof(tsg));

    return status ? status : work_make_below(g, w, group, engine, group);
}

static inline int64_t work_make(const struct gpu *g, struct work *w, uint32_t group)
{
    return work_make_on(g, w, group, RM_ENGINE_GRAPHICS);
}

static inline volatile uint32_t *userd(const struct work *w, uint32_t offset)
{
    return (volatile uint32_t *)(volatile void *)(w->at + offset);
}

static inline void ring(const struct gpu *g)
{
    uint64_t one = 1;

    (void)!write(g->doorbell, &one, sizeof(one));
}

/* a: a kernel's length in ns, or a copy's in bytes. */
static inline void submit_command(const struct gpu *g, struct work *w, enum sim_op_code op, uint64_t a)
{
    *(struct sim_command *)(void *)(w->at + WORK_AT) = (struct sim_command){.op = op, .a = a};
    ((struct sim_ring_entry *)(void *)(w->at + RING_AT))[w->put % RING_ENTRIES] = (struct sim_ring_entry){
        .offset = WORK_AT, .commands = 1};
    __atomic_store_n((uint32_t *)(void *)(w->at + RM_USERD_GP_PUT), ++w->put, __ATOMIC_RELEASE);
    ring(g);
}

static inline void submit(const struct gpu *g, struct work *w, uint64_t kernel_ns)
{
    submit_command(g, w, SIM_CMD_KERNEL, kernel_ns);
}
#endif

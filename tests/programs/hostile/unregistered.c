/* Work in a group that RM takes off no runlist: one of its channels is in an address space of nvidia-uvm's
 * and not registered there. Usage: unregistered add|end. Registers a channel, schedules the group and puts a
 * long kernel into it. add  makes a second channel at the first line of its input, and never registers it end
 * as a program that ends: unregisters its channel at the first line, frees it at the second Prints "ready",
 * and what it came to after each line; stands still at the end. */
#include "../../../native_sched/nvidia/rm/uvm_abi.h"
#include "../gpu.h"

enum { GROUP = 0x900, SPACE = 0xf00, CHANNEL = 0xf10, BINARY = 2 };
enum { OTHER_USERD_AT = 2048, WORDS = 16, RANGE_BYTES = 64 * MIB };
/* One of each channel's, for what nvidia-uvm maps of it. */
#define RANGES_AT UINT64_C(0x300000000)
static const uint64_t long_ns = UINT64_C(600) * 1000 * 1000 * 1000;

static struct gpu g;
static uint32_t uuid[4];
static int uvm;

/* Every command's parameters are words, its status at that one. */
static uint32_t uvm_call(uint32_t cmd, uint32_t *words, uint32_t status_at)
{
    must(!ioctl(uvm, cmd, words), "nvidia-uvm");
    return words[status_at];
}

static void open_space(void)
{
    struct rm_gid gid = {.flags = BINARY, .length = sizeof(uuid)};
    uint32_t vaspace[WORDS] = {0, RM_VASPACE_EXTERNALLY_OWNED};
    uint32_t none[WORDS] = {0}, gpu[WORDS] = {0}, with_uvm[WORDS] = {0};

    must(!rm_control(g.ctl, g.client, SUBDEVICE, NV2080_CTRL_CMD_GPU_GET_GID_INFO, &gid, sizeof(gid)),
         "uuid");
    memcpy(uuid, gid.data, sizeof(uuid));
    memcpy(gpu, uuid, sizeof(uuid));
    memcpy(with_uvm, uuid, sizeof(uuid));
    with_uvm[4] = (uint32_t)g.ctl;
    with_uvm[5] = g.client;
    with_uvm[6] = SPACE;
    must(!rm_alloc(g.ctl, g.client, DEVICE, SPACE, FERMI_VASPACE_A, vaspace, 0), "address space");
    uvm = open_node("/dev/nvidia-uvm");
    must(!uvm_call(UVM_INITIALIZE, none, 2), "initialized");
    hold_process_memory(uvm);
    must(!uvm_call(UVM_REGISTER_GPU, gpu, 9) && !uvm_call(UVM_REGISTER_GPU_VASPACE, with_uvm, 7),
         "registered");
}

static int64_t add_channel(uint32_t handle, uint64_t userd_at)
{
    struct rm_channel channel = {
        .gpfifo_offset = RING_AT,
        .gpfifo_entries = RING_ENTRIES,
        .userd_memory = {GROUP + 1},
        .userd_offset = {userd_at},
    };

    return rm_alloc(g.ctl, g.client, GROUP, handle, HOPPER_CHANNEL_GPFIFO_A, &channel, sizeof(channel));
}

static uint32_t uvm_register_channel(uint32_t handle)
{
    static struct uvm_range range = {RANGES_AT, RANGE_BYTES};
    uint32_t words[WORDS] = {0};

    memcpy(words, uuid, sizeof(uuid));
    words[4] = (uint32_t)g.ctl;
    words[5] = g.client;
    words[6] = handle;
    range.base += range.length;
    memcpy(words + 8, &range, sizeof(range));
    return uvm_call(UVM_REGISTER_CHANNEL, words, 12);
}

/* What nvidia-uvm maps of a channel is there with an object that works on it. */
static uint32_t register_working(uint32_t channel)
{
    static const uint32_t classes[] = {BLACKWELL_COMPUTE_B, BLACKWELL_COMPUTE_A, HOPPER_COMPUTE_A,
                                       ADA_COMPUTE_A,       AMPERE_COMPUTE_B,    AMPERE_COMPUTE_A,
                                       TURING_COMPUTE_A,    VOLTA_COMPUTE_A};
    uint32_t params[4] = {0};
    int64_t status = NV_ERR_INVALID_CLASS;

    for (size_t i = 0; chip_has_not(status) && i < sizeof(classes) / sizeof(*classes); i++)
        status = rm_alloc(g.ctl, g.client, channel, channel + 0x1000, classes[i], params, sizeof(params));
    return status ? (uint32_t)status : uvm_register_channel(channel);
}

static void well(uint32_t status, const char *what)
{
    if (!status)
        return;
    say("%s: %#x", what, status);
    _exit(1);
}

static uint32_t unregister_channel(uint32_t handle)
{
    uint32_t words[WORDS] = {0};

    memcpy(words, uuid, sizeof(uuid));
    words[4] = g.client;
    words[5] = handle;
    return uvm_call(UVM_UNREGISTER_CHANNEL, words, 6);
}

int main(int argc, char **argv)
{
    bool ends = argc > 1 && !strcmp(argv[1], "end");
    struct rm_tsg_schedule enable = {.enable = 1};
    struct work w;

    gpu_open(&g);
    open_space();
    g.vaspace = SPACE;
    must(!work_make(&g, &w, GROUP), "group");
    well(register_working(GROUP + 2), "registered");
    well((uint32_t)rm_control(g.ctl, g.client, GROUP, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &enable,
                              sizeof(enable)),
         "scheduled");
    well((uint32_t)add_channel(CHANNEL, OTHER_USERD_AT), "channel");
    well(register_working(CHANNEL), "registered, too");
    submit(&g, &w, long_ns);
    say("ready");
    must(told(), "first line");
    say("%lld", ends ? (long long)unregister_channel(CHANNEL)
                     : (long long)add_channel(CHANNEL + 1, OTHER_USERD_AT + 512));
    if (ends && told())
        say("%lld", (long long)rm_free(g.ctl, g.client, CHANNEL));
    hold();
}

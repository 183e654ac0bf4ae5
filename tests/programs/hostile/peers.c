/* Maps memory of one card on the other, and tries the same with a card of another container. Usage: peers
 * UUID UUID, in hex, in the order of their numbers; the driver is 580. Waits for a line of input before each
 * step. Prints RM's answers: "enabled E mapped M"; once the memory's name is freed, to as much again on that
 * card: "again A"; once its range is freed: "after A". */
#include "../../../native_sched/nvidia/rm/uvm_abi.h"
#include "../rm.h"

enum { CARDS = 2, VASPACE = 0x300, THERE = 0x400, AGAIN, MAPPED_BYTES = 600 * MIB };
enum { MAP_BYTES = 9264, VASPACE_BYTES = 56 };
static const uint64_t base = 0x1000000000;

static struct {
    int ctl, uvm;
    uint32_t client, device[CARDS]; /* 0: not granted */
    uint8_t uuid[CARDS][16];
} own;

static uint32_t uvm(uint32_t cmd, void *params, uint32_t status_at)
{
    uint32_t status;

    must(!ioctl(own.uvm, cmd, params), "nvidia-uvm");
    memcpy(&status, (uint8_t *)params + status_at, sizeof(status));
    return status;
}

static void read_uuid(uint8_t *uuid, const char *hex)
{
    for (int i = 0; i < 16; i++)
        must(sscanf(hex + 2 * i, "%2hhx", &uuid[i]) == 1, "uuid");
}

/* NVIDIA's nvidia-uvm registers a GPU for a process that has it open. */
static void open_cards(void)
{
    char path[32];

    for (int i = 0; i < CARDS; i++) {
        snprintf(path, sizeof(path), "/dev/nvidia%d", i);
        (void)!open(path, O_RDWR | O_CLOEXEC);
    }
}

/* Each is registered, as UVM lets anybody do; those that are granted have an address space. */
static void begin(uint32_t card)
{
    uint8_t gpu[40] = {0};
    uint32_t uvms[VASPACE_BYTES / 4] = {0, RM_VASPACE_EXTERNALLY_OWNED};
    struct rm_device device = {.id = card};
    struct uvm_register_gpu_vaspace vaspace = {.ctl_fd = -1, .client = own.client, .vaspace = VASPACE + card};

    memcpy(gpu, own.uuid[card], 16);
    must(uvm(UVM_REGISTER_GPU, gpu, 36) == NV_OK, "register");
    if (rm_alloc(own.ctl, own.client, own.client, DEVICE + card, NV01_DEVICE_0, &device, sizeof(device)))
        return;
    own.device[card] = DEVICE + card;
    must(!rm_alloc(own.ctl, own.client, DEVICE + card, VASPACE + card, FERMI_VASPACE_A, uvms, sizeof(uvms)),
         "address space");
    memcpy(vaspace.gpu, own.uuid[card], 16);
    must(uvm(UVM_REGISTER_GPU_VASPACE, &vaspace, 28) == NV_OK, "register its address space");
}

static int64_t memory(uint32_t handle, uint32_t device)
{
    struct rm_memory m = {.owner = OWNER, .size = MAPPED_BYTES};

    return rm_alloc(own.ctl, own.client, device, handle, NV01_MEMORY_LOCAL_USER, &m, sizeof(m));
}

static uint32_t map(uint32_t card)
{
    static uint8_t params[MAP_BYTES];
    struct uvm_map_external_begin *at = (void *)params;
    struct uvm_map_external_gpu *gpu = (void *)(at + 1);
    struct uvm_map_external_end *end = (void *)(params + sizeof(params) - sizeof(*end));

    *at = (struct uvm_map_external_begin){.range = {base, MAPPED_BYTES}};
    memcpy(gpu->gpu, own.uuid[card], 16);
    *end = (struct uvm_map_external_end){.gpus = 1, .ctl_fd = -1, .client = own.client, .memory = THERE};
    return uvm(UVM_MAP_EXTERNAL_ALLOCATION, params, sizeof(params) - 4);
}

int main(int argc, char **argv)
{
    struct uvm_initialize uvm_initialize = {.flags = 0};
    struct uvm_peers peers = {.status = 0};
    struct {
        struct uvm_range range;
        uint32_t status, pad;
    } range = {.range = {base, MAPPED_BYTES}};
    uint32_t last, enabled;

    must(argc == 1 + CARDS, "usage");
    own.ctl = open_node("/dev/nvidiactl");
    own.uvm = open_node("/dev/nvidia-uvm");
    open_cards();
    make_client(own.ctl, &own.client);
    must(uvm(UVM_INITIALIZE, &uvm_initialize, 8) == NV_OK, "initialize");
    hold_process_memory(own.uvm);
    for (uint32_t i = 0; i < CARDS; i++) {
        read_uuid(own.uuid[i], argv[1 + i]);
        begin(i);
        memcpy(i ? peers.other : peers.gpu, own.uuid[i], 16);
    }
    last = own.device[1] ? 1 : 0;
    must(own.device[last] && !memory(THERE, own.device[last]), "memory");
    must(uvm(UVM_CREATE_EXTERNAL_RANGE, &range, 16) == NV_OK, "range");
    say("ready");
    must(told(), "step");
    enabled = uvm(UVM_ENABLE_PEER_ACCESS, &peers, 32);
    say("enabled %#x mapped %#x", enabled, map(1 - last));
    must(told(), "step");
    must(!rm_free(own.ctl, own.client, THERE), "free");
    say("again %#llx", (unsigned long long)memory(AGAIN, own.device[last]));
    must(told(), "step");
    must(uvm(UVM_FREE, &range, 16) == NV_OK, "free the range");
    say("after %#llx", (unsigned long long)memory(AGAIN, own.device[last]));
    hold();
}

#include "../../base/clock.h"
#include "../../native_sched/nvidia/rm/lists.h"
#include "uvm.h"
#include "wait.h"
#include <errno.h>
#include <string.h>

enum { BAR1_BYTES = 1 << 28, REGISTER_BYTES = 1 << 24 };
enum { NODE_CTL = 1 << SIM_NODE_CTL, NODE_CARD = 1 << SIM_NODE_CARD, NODE_ANY = NODE_CTL | NODE_CARD };
enum { VERSION_CMD_QUERY = '2' };

static int check_version(struct rm_call *call)
{
    struct rm_check_version *version = call->outer;
    bool same;

    version->version[sizeof version->version - 1] = 0;
    same = version->cmd == VERSION_CMD_QUERY || !strcmp(version->version, call->rm->version);
    memset(version->version, 0, sizeof version->version);
    strncpy(version->version, call->rm->version, sizeof version->version - 1);
    version->reply = same;
    return same ? 0 : -EINVAL;
}

/* The first says it for all (nvidia_ioctl() in nv.c). */
static int sys_params(struct rm_call *call)
{
    const struct rm_sys_params *params = call->outer;

    if (!call->rm->memblock_bytes)
        call->rm->memblock_bytes = params->memblock_bytes;
    return call->rm->memblock_bytes == params->memblock_bytes ? 0 : -EBUSY;
}

static int card_info(struct rm_call *call)
{
    struct rm *rm = call->rm;
    struct rm_card_info *info = call->outer;

    if (call->outer_bytes / sizeof *info < rm->card_count)
        return -EINVAL;
    memset(info, 0, call->outer_bytes);
    for (uint32_t i = 0; i < rm->card_count; i++) {
        const struct sim_card *card = &rm->cards[i];

        info[i] = (struct rm_card_info){
            .valid = 1,
            .pci_bus = (uint8_t)(card->gpu_id >> 8),
            .pci_slot = card->pci_slot,
            .pci_vendor = SIM_PCI_VENDOR,
            .pci_device = card->profile->pci_device,
            .gpu_id = card->gpu_id,
            .reg_address = 0xc0000000u + (uint64_t)i * REGISTER_BYTES,
            .reg_bytes = REGISTER_BYTES,
            .fb_address = 0x1000000000u + (uint64_t)i * BAR1_BYTES,
            .fb_bytes = BAR1_BYTES,
            .minor = card->minor,
        };
    }
    return 0;
}

static int register_fd(struct rm_call *call)
{
    const struct sim_file *control_file = file_find(call->rm, call->aux_file);

    /* Neither itself nor one that is registered with another (RmIoctl() in escape.c). */
    if (!control_file || control_file->node != SIM_NODE_CTL || control_file == call->file ||
        control_file->control_id || call->file->control_id)
        return -EINVAL;
    call->file->control_id = control_file->id;
    return 0;
}

static int attach_gpus(struct rm_call *call)
{
    const uint32_t *id = call->outer;

    /* Once on a file. */
    if (call->file->attached)
        return -EINVAL;
    for (uint32_t i = 0; i < call->outer_bytes / sizeof *id; i++)
        if (id[i] && !card_by_gpu_id(call->rm, id[i]))
            return -EINVAL;
    call->file->attached = true;
    return 0;
}

static int wait_open(struct rm_call *call)
{
    memset(call->outer, 0, call->outer_bytes);
    return 0;
}

/* None has happened. */
static int event_data(struct rm_call *call)
{
    const uint32_t status = NV_ERR_OPERATING_SYSTEM;

    memcpy((char *)call->outer + call->outer_bytes - sizeof status, &status, sizeof status);
    return 0;
}

/* Where a mapping lies is the program's to know. */
static int mapping_info(struct rm_call *call)
{
    (void)call;
    return 0;
}

/* As RmIoctl() has it: of all classes events alone are made on a card's file. */
static bool made_there(const struct rm_call *call, uint32_t class_id)
{
    return call->file->node == SIM_NODE_CTL || class_id == NV01_EVENT || class_id == NV01_EVENT_OS_EVENT;
}

static int alloc(struct rm_call *call)
{
    struct rm_alloc *alloc = call->outer;

    if (!made_there(call, alloc->class_id))
        return -EINVAL;
    alloc->status = class_alloc(call, alloc->root, alloc->parent, &alloc->handle, alloc->class_id);
    return 0;
}

static int alloc_short(struct rm_call *call)
{
    struct rm_alloc_short *alloc = call->outer;

    if (!made_there(call, alloc->class_id))
        return -EINVAL;
    alloc->status = class_alloc(call, alloc->root, alloc->parent, &alloc->handle, alloc->class_id);
    return 0;
}

static int free_object(struct rm_call *call)
{
    struct rm_free *request = call->outer;
    struct rm_object *object = object_find(call->rm, request->root, request->handle);

    request->status = client_status(call->rm, request->root, call->file);
    if (request->status)
        return 0;
    /* What is not there is free: RM is compiled so (RS_COMPATABILITY_MODE in rs_server.c), and libcuda relies
     * on it. */
    if (object)
        object_free(call->rm, object);
    return 0;
}

static int control_object(struct rm_call *call)
{
    struct rm_control *ctl = call->outer;

    if (ctl->params_size > call->params_bytes ||
        rm_bytes_with_lists(ctl->cmd, call->params, ctl->params_size) != call->params_bytes) {
        ctl->status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    call->params_bytes = ctl->params_size;
    ctl->status = control(call, ctl);
    return 0;
}

/* Nodes as nvidia_ioctl() in nv.c and RmIoctl() in escape.c have them. bytes 0: any multiple of `step`; step
 * 0, too: as many as the version has. `card`: the call goes to the card and takes its time. SHARE does not:
 * it holds RM's own lock and its client's, and no GPU's (serverShareResourceAccess() in rs_server.c). */
static const struct escape_rule {
    uint32_t nr, nodes, bytes, step;
    bool card;
    int (*execute)(struct rm_call *call);
} rules[] = {
    {NV_ESC_RM_ALLOC, NODE_ANY, sizeof(struct rm_alloc), 0, true, alloc},
    {NV_ESC_RM_ALLOC, NODE_ANY, sizeof(struct rm_alloc_short), 0, true, alloc_short},
    {NV_ESC_RM_FREE, NODE_CTL, sizeof(struct rm_free), 0, true, free_object},
    {NV_ESC_RM_CONTROL, NODE_CTL, sizeof(struct rm_control), 0, true, control_object},
    {NV_ESC_RM_DUP_OBJECT, NODE_CTL, sizeof(struct rm_dup), 0, true, dup_object},
    {NV_ESC_RM_SHARE, NODE_CTL, sizeof(struct rm_share), 0, false, share_object},
    {NV_ESC_RM_MAP_MEMORY, NODE_CTL, sizeof(struct rm_map_memory), 0, false, map_memory},
    {NV_ESC_RM_UNMAP_MEMORY, NODE_CTL, sizeof(struct rm_unmap_memory), 0, false, unmap_memory},
    {NV_ESC_RM_ALLOC_MEMORY, NODE_CARD, sizeof(struct rm_alloc_memory), 0, true, pages_alloc},
    {NV_ESC_RM_MAP_MEMORY_DMA, NODE_CTL, 0, 0, true, map_dma},
    {NV_ESC_RM_UNMAP_MEMORY_DMA, NODE_CTL, 0, 0, true, unmap_dma},
    {NV_ESC_RM_GET_EVENT_DATA, NODE_ANY, 16, 0, false, event_data},
    {NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO, NODE_CTL, 40, 0, false, mapping_info},
    {NV_ESC_CARD_INFO, NODE_CTL, 0, 1, false, card_info},
    {NV_ESC_REGISTER_FD, NODE_ANY, sizeof(struct rm_register_fd), 0, false, register_fd},
    {NV_ESC_ALLOC_OS_EVENT, NODE_ANY, sizeof(struct rm_os_event), 0, false, os_event_alloc},
    {NV_ESC_FREE_OS_EVENT, NODE_ANY, sizeof(struct rm_os_event), 0, false, os_event_free},
    {NV_ESC_CHECK_VERSION_STR, NODE_CTL, sizeof(struct rm_check_version), 0, false, check_version},
    {NV_ESC_ATTACH_GPUS_TO_FD, NODE_CTL, 0, sizeof(uint32_t), false, attach_gpus},
    {NV_ESC_SYS_PARAMS, NODE_CTL, sizeof(struct rm_sys_params), 0, false, sys_params},
    {NV_ESC_WAIT_OPEN_COMPLETE, NODE_ANY, 0, 8, false, wait_open},
};

static bool size_fits(const struct escape_rule *rule, const struct rm_call *call)
{
    uint32_t bytes = call->outer_bytes;

    if (rule->bytes)
        return bytes == rule->bytes;
    return rule->step ? bytes && bytes % rule->step == 0
                      : rm_command_row(&call->rm->table, call->cmd) != NULL;
}

/* The same calls of a run every time: Knuth's generator, of which the high bits are the random ones. */
static bool in_tail(struct rm *rm)
{
    rm->tail_seed = rm->tail_seed * 6364136223846793005u + 1442695040888963407u;
    return (rm->tail_seed >> 33) % 1000 < rm->tail_per_mille;
}

/* The caller waits out the card's time with the RM lock held, as behind the real driver's. */
static void take_time(struct rm *rm)
{
    uint32_t cost_us = rm->call_us + (in_tail(rm) ? rm->tail_us : 0);

    if (cost_us)
        wait_until(monotonic_ns() + (uint64_t)cost_us * 1000);
}

int escape(struct rm_call *call)
{
    call->rm->calls++;
    if (call->file->node == SIM_NODE_UVM)
        return uvm_command(call);
    if (RM_SIZE(call->cmd) != call->outer_bytes)
        return -EINVAL;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].nr != RM_NR(call->cmd) || !size_fits(&rules[i], call))
            continue;
        if (!(rules[i].nodes & 1u << call->file->node))
            return -EINVAL;
        if (rules[i].card)
            take_time(call->rm);
        return rules[i].execute(call);
    }
    return -EINVAL;
}

#include "../../base/clock.h"
#include "../../native_sched/nvidia/rm/perfmon.h"
#include "rm.h"
#include <string.h>
#include <time.h>

enum { KIB_SHIFT = 10, BAR1_KIB = 256 << 10 };
enum { ANY_CHANNEL = VOLTA_CHANNEL_GPFIFO_A }; /* stands for the channels of every architecture */
enum { FORMAT_ASCII = 0, FORMAT_BINARY = 2, UUID_BYTES = 16 };

static uint32_t attached_ids(const struct rm_request *request)
{
    struct rm_gpu_ids *ids = request->params;

    for (uint32_t i = 0; i < RM_MAX_CARDS; i++)
        ids->id[i] = i < request->rm->card_count ? request->rm->cards[i].gpu_id : 0xffffffffu;
    return NV_OK;
}

static uint32_t id_info(const struct rm_request *request)
{
    struct rm_id_info *info = request->params;
    const struct sim_card *card = card_by_gpu_id(request->rm, info->gpu_id);

    if (!card)
        return NV_ERR_INVALID_ARGUMENT;
    *info = (struct rm_id_info){
        .gpu_id = card->gpu_id,
        .device_instance = card->index,
        .name_pointer = info->name_pointer,
        .board_id = card->gpu_id,
        .gpu_instance = card->index,
        .numa_node = -1,
    };
    return NV_OK;
}

static uint32_t name(const struct rm_request *request)
{
    struct rm_name *out = request->params;

    if (out->flags != FORMAT_ASCII)
        return NV_ERR_NOT_SUPPORTED;
    memset(out->ascii, 0, sizeof out->ascii);
    strncpy(out->ascii, request->card->profile->name, sizeof out->ascii - 1);
    return NV_OK;
}

static uint8_t hex_digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static uint32_t gid(const struct rm_request *request)
{
    struct rm_gid *out = request->params;
    const char *text = request->card->uuid;

    if (out->flags != FORMAT_ASCII && out->flags != FORMAT_BINARY)
        return NV_ERR_NOT_SUPPORTED;
    memset(out->data, 0, sizeof out->data);
    if (out->flags == FORMAT_ASCII) {
        out->length = (uint32_t)strlen(text) + 1;
        memcpy(out->data, text, out->length);
        return NV_OK;
    }
    out->length = UUID_BYTES;
    text += strlen("GPU-");
    for (uint32_t i = 0; i < UUID_BYTES; i++, text += 2) {
        text += *text == '-';
        out->data[i] = (uint8_t)(hex_digit(text[0]) << 4 | hex_digit(text[1]));
    }
    return NV_OK;
}

static uint32_t arch(const struct rm_request *request)
{
    struct rm_arch *out = request->params;

    *out = (struct rm_arch){
        .architecture = request->card->profile->architecture,
        .implementation = request->card->profile->implementation,
        .revision = 0xa1,
    };
    return NV_OK;
}

static uint32_t pci(const struct rm_request *request)
{
    const struct card_profile *profile = request->card->profile;
    struct rm_pci *out = request->params;

    *out = (struct rm_pci){
        .device_id = (uint32_t)profile->pci_device << 16 | SIM_PCI_VENDOR,
        .subsystem_id = (uint32_t)profile->pci_subsystem << 16 | SIM_PCI_VENDOR,
        .revision_id = 0xa1,
        .ext_device_id = profile->pci_device,
    };
    return NV_OK;
}

/* Of memory KiB, of the cache bytes, of the bus bits. No card is a node of the host's memory. */
static bool fb_value(const struct sim_card *card, uint32_t index, uint32_t *out)
{
    enum { BUS_WIDTH = 0xb, L2CACHE_SIZE = 0x1b, NUMA_NODE_ID = 0x3b };
    const struct heap *heap = &card->heap;

    switch (index) {
    case BUS_WIDTH:
        *out = card->profile->memory_bus_bits;
        return true;
    case L2CACHE_SIZE:
        *out = card->profile->l2_kib << KIB_SHIFT;
        return true;
    case NUMA_NODE_ID:
        *out = 0xffffffffu;
        return true;
    case RM_FB_BAR1_SIZE:
    case RM_FB_BAR1_AVAIL:
        *out = BAR1_KIB;
        return true;
    case RM_FB_RAM_SIZE:
    case RM_FB_TOTAL_RAM_SIZE:
    case RM_FB_HEAP_SIZE:
    case RM_FB_MAPPABLE_HEAP_SIZE:
    case RM_FB_USABLE_RAM_SIZE:
        *out = (uint32_t)(heap->total_bytes >> KIB_SHIFT);
        return true;
    case RM_FB_LARGEST_FREE:
    case RM_FB_HEAP_FREE:
        *out = (uint32_t)((heap->total_bytes - heap->used_bytes) >> KIB_SHIFT);
        return true;
    default:
        return false;
    }
}

static uint32_t fb_info(const struct rm_request *request)
{
    struct rm_fb_info *info = request->params;

    if (!info->count || info->count > (request->params_bytes - sizeof info->count) / sizeof info->entry[0])
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < info->count; i++)
        if (!fb_value(request->card, info->entry[i].index, &info->entry[i].data))
            info->entry[i].data = 0;
    return NV_OK;
}

static uint32_t fb_info_list(const struct rm_request *request)
{
    uint32_t count;
    struct rm_fb_entry *list = request_list(request, sizeof *list, 0, &count);

    if (!list)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count; i++)
        if (!fb_value(request->card, list[i].index, &list[i].data))
            list[i].data = 0;
    return NV_OK;
}

/* One, of all the card's memory. */
static uint32_t fb_regions(const struct rm_request *request)
{
    struct {
        uint32_t count, pad;
        uint64_t base, limit;
    } *out = request->params;

    memset(request->params, 0, request->params_bytes);
    out->count = 1;
    out->limit = request->card->heap.total_bytes - 1;
    return NV_OK;
}

static bool listed(const struct rm_pids *pids, uint32_t pid)
{
    for (uint32_t i = 0; i < pids->count; i++)
        if (pids->pid[i] == pid)
            return true;
    return false;
}

/* NVIDIA's driver lists processes by a subdevice and by what is on channels. */
static bool lists_by(uint32_t class_id)
{
    return class_id != NV01_DEVICE_0 && class_id != NV01_MEMORY_LOCAL_USER;
}

static uint32_t get_pids(const struct rm_request *request)
{
    enum { BY_CLASS, BY_GUEST };
    struct rm_pids *pids = request->params;

    if (pids->id_type > BY_GUEST)
        return NV_ERR_INVALID_ARGUMENT;
    pids->count = 0;
    if (pids->id_type != BY_CLASS || !lists_by(pids->id))
        return NV_OK;
    for (const struct rm_client *client = request->rm->clients; client; client = client->next) {
        if (pids->count == RM_MAX_PIDS)
            break;
        if (!client->internal && !listed(pids, (uint32_t)client->tgid) &&
            client_has_class(client, request->card, pids->id))
            pids->pid[pids->count++] = (uint32_t)client->tgid;
    }
    return NV_OK;
}

/* Memory objects alone, each by its length, as _gpuCollectMemInfo() in gpu_rmapi.c has it: nothing of what
 * the driver takes by itself, such as contexts. */
static void count_memory(const struct rm_object *object, const struct sim_card *card,
                         struct rm_pid_entry *entry)
{
    if (object->card == card && object->class_id == NV01_MEMORY_LOCAL_USER) {
        if (!object->alias_next)
            entry->memory_private += object->memory_bytes;
        else if (object->bytes)
            entry->memory_shared_owned += object->memory_bytes;
        else
            entry->memory_shared_duped += object->memory_bytes;
    }
    for (const struct rm_object *child = object->child; child; child = child->next)
        count_memory(child, card, entry);
}

static uint32_t get_pid_info(const struct rm_request *request)
{
    struct rm_pid_info *info = request->params;

    if (!info->count || info->count > RM_MAX_PID_INFO)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < info->count; i++) {
        struct rm_pid_entry *entry = &info->entry[i];
        uint32_t pid = entry->pid, index = entry->index;

        *entry = (struct rm_pid_entry){.pid = pid, .index = index};
        entry->compute_instance = entry->gpu_instance = RM_NO_INSTANCE;
        entry->result = index ? NV_ERR_INVALID_ARGUMENT : NV_OK;
        for (const struct rm_client *client = request->rm->clients; client && !index; client = client->next)
            if ((uint32_t)client->tgid == pid && !client->internal)
                count_memory(&client->root, request->card, entry);
    }
    return NV_OK;
}

/* From the monotonic clock to the wall's, the same at every call. */
static uint64_t wall_ahead_ns(void)
{
    static uint64_t ahead_ns; /* under the lock */
    struct timespec wall;

    if (!ahead_ns) {
        clock_gettime(CLOCK_REALTIME, &wall);
        ahead_ns = (uint64_t)wall.tv_sec * 1000000000 + (uint64_t)wall.tv_nsec - monotonic_ns();
    }
    return ahead_ns;
}

static struct rm_perfmon_use told(const struct gpu_use *use)
{
    return (struct rm_perfmon_use){use->hundredths,
                                   use->hundredths ? (uint32_t)use->tgid : (uint32_t)RM_PERFMON_NO_PID};
}

/* Kernels are the graphics engine's, copies what reads and writes memory, and all of video is the decoders'.
 */
static uint32_t utilization(const struct rm_request *request)
{
    struct rm_perfmon_layout layout = rm_perfmon_layout(&request->rm->table);
    struct gpu_use use[GPU_UTILIZATION_SLOTS][GPU_ENGINES];
    struct rm_perfmon_head *head = request->params;
    uint8_t *at = (uint8_t *)request->params + sizeof *head;
    uint64_t end_ns;

    if (head->buffer_bytes != layout.sample_bytes * RM_PERFMON_SAMPLES)
        return NV_ERR_INVALID_ARGUMENT;
    head->count = RM_PERFMON_SAMPLES;
    head->tracker = 0;
    end_ns = gpu_utilization(request->card->gpu, use) + wall_ahead_ns();
    for (uint32_t i = 0; i < RM_PERFMON_SAMPLES; i++, at += layout.sample_bytes) {
        const struct rm_perfmon_use known[RM_PERFMON_KNOWN] = {
            [RM_PERFMON_FB] = told(&use[i][SIM_ENGINE_COPY]),
            [RM_PERFMON_GR] = told(&use[i][SIM_ENGINE_GRAPHICS]),
            [RM_PERFMON_NVENC] = {0, RM_PERFMON_NO_PID},
            [RM_PERFMON_NVDEC] = told(&use[i][GPU_ENGINE_VIDEO]),
        };

        rm_perfmon_write(&layout, at, end_ns - (RM_PERFMON_SAMPLES - 1 - i) * GPU_UTILIZATION_SLOT_NS, known);
    }
    return NV_OK;
}
_Static_assert((int)GPU_UTILIZATION_SLOTS == (int)RM_PERFMON_SAMPLES, "a slot for each sample");

static const struct control_rule {
    uint32_t cmd, class_id;
    uint32_t (*execute)(const struct rm_request *request);
} rules[] = {
    {NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, NV01_ROOT_CLIENT, attached_ids},
    {NV0000_CTRL_CMD_GPU_GET_ID_INFO, NV01_ROOT_CLIENT, id_info},
    {NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY, NV01_ROOT_CLIENT, inherited_share},
    {NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, NV01_ROOT_CLIENT, export_object},
    {NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, NV01_ROOT_CLIENT, export_objects},
    {NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD, NV01_ROOT_CLIENT, export_create},
    {NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, NV01_ROOT_CLIENT, export_info},
    {NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, NV01_ROOT_CLIENT, import_object},
    {NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, NV01_ROOT_CLIENT, import_objects},
    {NV2080_CTRL_CMD_GPU_GET_NAME_STRING, NV20_SUBDEVICE_0, name},
    {NV2080_CTRL_CMD_GPU_GET_GID_INFO, NV20_SUBDEVICE_0, gid},
    {NV2080_CTRL_CMD_GPU_GET_PIDS, NV20_SUBDEVICE_0, get_pids},
    {NV2080_CTRL_CMD_GPU_GET_PID_INFO, NV20_SUBDEVICE_0, get_pid_info},
    {NV2080_CTRL_CMD_FB_GET_INFO_V2, NV20_SUBDEVICE_0, fb_info},
    {NV2080_CTRL_CMD_FB_GET_INFO, NV20_SUBDEVICE_0, fb_info_list},
    {NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO, NV20_SUBDEVICE_0, fb_regions},
    {NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, NV20_SUBDEVICE_0, utilization},
    {NV2080_CTRL_CMD_MC_GET_ARCH_INFO, NV20_SUBDEVICE_0, arch},
    {NV2080_CTRL_CMD_BUS_GET_PCI_INFO, NV20_SUBDEVICE_0, pci},
    {NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, NV20_SUBDEVICE_0, disable_channels},
    {NV503C_CTRL_CMD_REGISTER_VA_SPACE, NV50_THIRD_PARTY_P2P, third_party_space},
    {NV503C_CTRL_CMD_UNREGISTER_VA_SPACE, NV50_THIRD_PARTY_P2P, third_party_no_space},
    {NV503C_CTRL_CMD_REGISTER_VIDMEM, NV50_THIRD_PARTY_P2P, third_party_memory},
    {NV503C_CTRL_CMD_UNREGISTER_VIDMEM, NV50_THIRD_PARTY_P2P, third_party_no_memory},
    {NV503C_CTRL_CMD_REGISTER_PID, NV50_THIRD_PARTY_P2P, third_party_process},
    {NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, KEPLER_CHANNEL_GROUP_A, tsg_schedule},
    {NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, ANY_CHANNEL, tsg_schedule},
    {NVA06C_CTRL_CMD_SET_TIMESLICE, KEPLER_CHANNEL_GROUP_A, tsg_set_timeslice},
    {NVA06C_CTRL_CMD_GET_TIMESLICE, KEPLER_CHANNEL_GROUP_A, tsg_get_timeslice},
    {NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, KEPLER_CHANNEL_GROUP_A, tsg_set_interleave},
    {NVA06C_CTRL_CMD_PREEMPT, KEPLER_CHANNEL_GROUP_A, tsg_preempt},
    {NVA06C_CTRL_CMD_GET_INFO, KEPLER_CHANNEL_GROUP_A, tsg_info},
};

/* RM keeps an answer of a card and gives it to anybody who names a device or subdevice of that card
 * (rmapi_cache.c). */
static bool is_kept(const struct rm_call *call, uint32_t cmd, const struct rm_object *of)
{
    return cmd == NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES && of && of->card && of->card->asked &&
           (of->class_id == NV01_DEVICE_0 || of->class_id == NV20_SUBDEVICE_0) &&
           control_size_fits(call->rm, cmd, call->params_bytes);
}

uint32_t control(struct rm_call *call, const struct rm_control *ctl)
{
    struct rm_request request = {.rm = call->rm, .params = call->params, .params_bytes = call->params_bytes};
    uint32_t class_id;

    request.aux_file = call->aux_file;
    if (!(ctl->cmd & RM_CONTROL_NUMBER_MASK))
        return NV_OK; /* "nothing", of any class, before anything is looked at */
    request.object = object_find(call->rm, ctl->client, ctl->object);
    if (is_kept(call, ctl->cmd, request.object))
        return subdevices(&request);
    if (!client_find(call->rm, ctl->client, call->file))
        return NV_ERR_INVALID_CLIENT;
    if (!control_size_fits(call->rm, ctl->cmd, call->params_bytes))
        return NV_ERR_INVALID_ARGUMENT; /* before the object is looked for */
    if (!request.object)
        return NV_ERR_OBJECT_NOT_FOUND;
    request.card = request.object->card;
    if (request.card && request.card->lost)
        return NV_ERR_GPU_IS_LOST;
    class_id = class_is_channel(request.object->class_id) ? ANY_CHANNEL : request.object->class_id;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].cmd == ctl->cmd && rules[i].class_id == class_id)
            return rules[i].execute(&request);
    return answer_control(&request, ctl->cmd);
}

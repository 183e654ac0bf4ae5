/* Controls that ask what the card and the driver are, and such as are accepted without consequence here. */
#include "../../base/clock.h"
#include "../../native_sched/nvidia/rm/lists.h"
#include "../abi/info_abi.h"
#include "rm.h"
#include <stdio.h>
#include <string.h>

enum { LIST_COUNT_BYTES = 4 };
enum { BAR0_MIB = 16, BAR1_MIB = 256, BUS_TYPE_PCIE = 3 };

/* Accepted; what it sets or tells is nothing to a simulated card. */
static uint32_t nothing(const struct rm_request *request)
{
    (void)request;
    return NV_OK;
}

static uint32_t zeros(const struct rm_request *request)
{
    memset(request->params, 0, request->params_bytes);
    return NV_OK;
}

/* A card without what it asks for: no ECC memory, MIG off. */
static uint32_t absent(const struct rm_request *request)
{
    (void)request;
    return NV_ERR_NOT_SUPPORTED;
}

static uint32_t not_there(const struct rm_request *request)
{
    (void)request;
    return NV_ERR_OBJECT_NOT_FOUND;
}

static uint32_t illegal(const struct rm_request *request)
{
    (void)request;
    return NV_ERR_ILLEGAL_ACTION;
}

/* Its first word names a card. */
static uint32_t of_card(const struct rm_request *request)
{
    const uint32_t *gpu_id = request->params;

    return card_by_gpu_id(request->rm, *gpu_id) ? NV_ERR_NOT_SUPPORTED : NV_ERR_OBJECT_NOT_FOUND;
}

static uint32_t gpu_id(const struct rm_request *request)
{
    *(uint32_t *)request->params = request->card->gpu_id;
    return NV_OK;
}

static uint32_t card_time(const struct rm_request *request)
{
    *(uint64_t *)request->params = monotonic_ns();
    return NV_OK;
}

/* Of lists that are pointed to, which no program here asks for. */
static uint32_t invalid(const struct rm_request *request)
{
    (void)request;
    return NV_ERR_INVALID_ARGUMENT;
}

uint32_t subdevices(const struct rm_request *request)
{
    request->object->card->asked = true;
    *(uint32_t *)request->params = 1;
    return NV_OK;
}

static const char *branch(const struct rm *rm)
{
    static char text[32]; /* under the lock */

    snprintf(text, sizeof text, "rel/gpu_drv/r%u/r%u_00", rm->major, rm->major);
    return text;
}

static const char title[] = "NVIDIA UNIX Open Kernel Module for x86_64, simulated";

/* Where it may put them the caller does not always say: then it asks how long they are. */
static uint32_t build_version(const struct rm_request *request)
{
    const char *strings[RM_LISTS_MAX] = {request->rm->version, branch(request->rm), title};
    uint32_t longest = 0, room;
    bool all = true;

    for (uint32_t i = 0; i < RM_LISTS_MAX; i++) {
        all &= request_list(request, 1, i, &room) != NULL;
        longest = strlen(strings[i]) + 1 > longest ? (uint32_t)strlen(strings[i]) + 1 : longest;
    }
    if (all && room < longest)
        return NV_ERR_INVALID_PARAM_STRUCT;
    for (uint32_t i = 0; all && i < RM_LISTS_MAX; i++)
        memcpy(request_list(request, 1, i, &room), strings[i], strlen(strings[i]) + 1);
    if (!all)
        memcpy(request->params, &longest, sizeof longest);
    return NV_OK;
}

/* Four strings from 560.28 on, three before: without the branch. */
static uint32_t build_version_v2(const struct rm_request *request)
{
    enum { STRING_BYTES = 256, FOUR_STRINGS = 4 * STRING_BYTES };
    char *at = request->params;

    memset(at, 0, request->params_bytes);
    strncpy(at, request->rm->version, STRING_BYTES - 1);
    strncpy(at += STRING_BYTES, branch(request->rm), STRING_BYTES - 1);
    if (request->params_bytes > FOUR_STRINGS)
        strncpy(at += STRING_BYTES, branch(request->rm), STRING_BYTES - 1);
    memcpy(at + STRING_BYTES, title, sizeof title);
    return NV_OK;
}

static uint32_t device_ids(const struct rm_request *request)
{
    struct rm_device_ids *ids = request->params;

    ids->mask = (uint32_t)((1ull << request->rm->card_count) - 1);
    return NV_OK;
}

static uint32_t probed_ids(const struct rm_request *request)
{
    uint32_t *ids = request->params;

    memset(ids, 0, request->params_bytes); /* flags, where there are any */
    memset(ids, 0xff, 2 * sizeof(struct rm_gpu_ids));
    for (uint32_t i = 0; i < request->rm->card_count; i++)
        ids[i] = request->rm->cards[i].gpu_id;
    return NV_OK;
}

static uint32_t active_ids(const struct rm_request *request)
{
    struct rm_active_ids *list = request->params;

    memset(list, 0, sizeof *list);
    list->count = request->rm->card_count;
    for (uint32_t i = 0; i < list->count; i++) {
        list->device[i].gpu_id = request->rm->cards[i].gpu_id;
        list->device[i].gpu_instance = list->device[i].compute_instance = RM_NO_INSTANCE;
    }
    return NV_OK;
}

/* To attach and to detach; the first may be "all" (NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS). */
static uint32_t known_ids(const struct rm_request *request)
{
    enum { ALL_IDS = 0xffff };
    const struct rm_gpu_ids *ids = request->params;

    for (uint32_t i = 0; i < RM_MAX_CARDS && ids->id[i] != ~0u && ids->id[0] != ALL_IDS; i++)
        if (!card_by_gpu_id(request->rm, ids->id[i]))
            return NV_ERR_INVALID_ARGUMENT;
    return NV_OK;
}

static uint32_t known_id(const struct rm_request *request)
{
    const uint32_t *gpu_id = request->params;

    return card_by_gpu_id(request->rm, *gpu_id) ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

static uint32_t id_info_v2(const struct rm_request *request)
{
    struct {
        uint32_t gpu_id, flags, device, subdevice, sli, board, instance;
        int32_t numa;
    } *info = request->params;
    const struct sim_card *card = card_by_gpu_id(request->rm, info->gpu_id);

    if (!card)
        return NV_ERR_INVALID_ARGUMENT;
    info->flags = info->subdevice = info->sli = 0;
    info->device = card->index;
    info->board = card->gpu_id;
    info->instance = card->index;
    info->numa = -1;
    return NV_OK;
}

static uint32_t class_at(const struct rm_request *request, uint32_t i)
{
    return chip_class(request->card->profile->chip, request->rm->major, request->rm->minor, i);
}

static uint32_t classes_into(const struct rm_request *request, uint32_t *list, uint32_t room)
{
    uint32_t count = 0, found;

    for (; (found = class_at(request, count)); count++) {
        if (list && count >= room)
            return NV_ERR_INVALID_PARAM_STRUCT;
        if (list)
            list[count] = found;
    }
    memcpy(request->params, &count, sizeof count);
    return NV_OK;
}

static uint32_t class_list(const struct rm_request *request)
{
    uint32_t room, *list = request_list(request, sizeof *list, 0, &room);

    return classes_into(request, list, room);
}

static uint32_t class_list_v2(const struct rm_request *request)
{
    uint32_t *params = request->params;

    return classes_into(request, params + 1, request->params_bytes / (uint32_t)sizeof *params - 1);
}

/* A list of (index, data) behind its length, as large as the driver's version has it. */
static uint32_t info_list(const struct rm_request *request,
                          uint32_t (*value)(const struct rm_request *request, uint32_t index))
{
    uint32_t count = *(const uint32_t *)request->params;
    struct rm_info_entry *entry = (void *)((uint8_t *)request->params + LIST_COUNT_BYTES);

    if (!count || count > (request->params_bytes - LIST_COUNT_BYTES) / sizeof *entry)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count; i++)
        entry[i].data = value(request, entry[i].index);
    return NV_OK;
}

/* NV2080_CTRL_GPU_INFO_INDEX_*: all is "no" but these. */
static uint32_t gpu_value(const struct rm_request *request, uint32_t index)
{
    enum { SM_VERSION = 0x2c, MINOR_REVISION_EXT = 0x4 };

    if (index == SM_VERSION)
        return gr_sm_version(request->card->profile);
    return index == MINOR_REVISION_EXT || index == RM_GPU_INFO_DMABUF;
}

static uint32_t gpu_info(const struct rm_request *request)
{
    return info_list(request, gpu_value);
}

/* NV2080_CTRL_BUS_INFO_INDEX_* */
static uint32_t bus_value(const struct rm_request *request, uint32_t index)
{
    enum { TYPE = 0x0, BUS_NUMBER = 0xf, DEVICE_NUMBER = 0x10 };

    switch (index) {
    case TYPE:
        return BUS_TYPE_PCIE;
    case BUS_NUMBER:
        return request->card->gpu_id >> 8;
    case DEVICE_NUMBER:
        return request->card->pci_slot;
    default:
        return 0;
    }
}

static uint32_t bus_info(const struct rm_request *request)
{
    return info_list(request, bus_value);
}

static uint32_t pci_bars(const struct rm_request *request)
{
    struct {
        uint32_t count, pad;
        struct {
            uint32_t flags, mib;
            uint64_t bytes, offset;
        } bar[8];
    } *out = request->params;
    static const uint32_t mib[] = {BAR0_MIB, BAR1_MIB};

    _Static_assert(sizeof *out == 200, "NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS");
    memset(out, 0, sizeof *out);
    for (; out->count < sizeof mib / sizeof mib[0]; out->count++) {
        out->bar[out->count].mib = mib[out->count];
        out->bar[out->count].bytes = (uint64_t)mib[out->count] << 20;
    }
    return NV_OK;
}

static uint32_t engine_of_copy(uint32_t i)
{
    enum { BEFORE_THE_GAP = 10 };

    return i < BEFORE_THE_GAP ? RM_ENGINE_COPY0 + i : RM_ENGINE_COPY10 + i - BEFORE_THE_GAP;
}

static uint32_t engines(const struct rm_request *request)
{
    uint32_t *out = request->params, count = 0;

    memset(out, 0, request->params_bytes);
    out[++count] = RM_ENGINE_GRAPHICS;
    for (uint32_t i = 0; i < request->card->profile->copy_engines; i++)
        out[++count] = engine_of_copy(i);
    out[0] = count;
    return NV_OK;
}

/* Two bytes of each engine, then which are there: a word of 32 bits, or of 64 where there may be more. */
static uint32_t copy_engines(const struct rm_request *request)
{
    enum { OF_32_ENGINES = 2 * 32 + sizeof(uint32_t) };
    uint32_t engines_max = request->params_bytes == OF_32_ENGINES ? 32 : 64;
    uint64_t present = (1ull << request->card->profile->copy_engines) - 1;

    memset(request->params, 0, request->params_bytes);
    memcpy((uint8_t *)request->params + 2 * (size_t)engines_max, &present, engines_max / 8);
    return NV_OK;
}

static uint32_t short_name(const struct rm_request *request)
{
    static const char *const of[CHIPS] = {
#define CHIP(name, major, minor) [CHIP_##name] = #name,
#include "facts/class_lists.def"
    };

    memset(request->params, 0, request->params_bytes);
    strcpy(request->params, of[request->card->profile->chip]);
    return NV_OK;
}

/* NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_*: of what is mapped. */
static uint32_t address_space(const struct rm_request *request)
{
    enum { SYSTEM_MEMORY = 1, VIDEO_MEMORY = 2, REGISTERS = 3 };
    struct {
        uint32_t object, flags, type;
    } *out = request->params;
    const struct rm_object *object = object_find(request->rm, request->object->client->root.handle,
                                                 out->object);

    if (!object)
        return NV_ERR_OBJECT_NOT_FOUND;
    out->type = SYSTEM_MEMORY;
    if (class_is_usermode(object->class_id))
        out->type = REGISTERS;
    else if (object->class_id == NV01_MEMORY_LOCAL_USER)
        out->type = VIDEO_MEMORY;
    return NV_OK;
}

static const struct answered {
    uint32_t cmd;
    uint32_t (*execute)(const struct rm_request *request);
} answers[] = {
    {NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION, build_version},
    {NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO, zeros},
    {NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, invalid},
    {NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2, p2p_caps},
    {NV0000_CTRL_CMD_SYSTEM_GET_FABRIC_STATUS, zeros},
    {NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX, p2p_matrix},
    {NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2, build_version_v2},
    {NV0000_CTRL_CMD_SYSTEM_GET_FEATURES, zeros},
    {NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS, device_ids},
    {NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, id_info_v2},
    {NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, probed_ids},
    {NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS, active_ids},
    {NV0000_CTRL_CMD_GPU_ATTACH_IDS, known_ids},
    {NV0000_CTRL_CMD_GPU_DETACH_IDS, known_ids},
    {NV0000_CTRL_CMD_GPU_GET_PCI_INFO, of_card},
    {NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID, of_card},
    {NV0000_CTRL_CMD_GPU_QUERY_DRAIN_STATE, of_card},
    {NV0000_CTRL_CMD_GPU_ASYNC_ATTACH_ID, known_id},
    {NV0000_CTRL_CMD_GPU_WAIT_ATTACH_ID, nothing},
    {NV0000_CTRL_CMD_GPU_GET_MEMOP_ENABLE, zeros},
    {NV0000_CTRL_CMD_SYNC_GPU_BOOST_GROUP_INFO, zeros},
    {NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE, address_space},
    {NV0080_CTRL_CMD_GPU_GET_CLASSLIST, class_list},
    {NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES, subdevices},
    {NV0080_CTRL_CMD_GPU_GET_VIRTUALIZATION_MODE, zeros},
    {NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, class_list_v2},
    {NV0080_CTRL_CMD_GPU_QUERY_SW_STATE_PERSISTENCE, zeros},
    {NV0080_CTRL_CMD_GPU_GET_VGX_CAPS, zeros},
    {NV0080_CTRL_CMD_DMA_ADV_SCHED_GET_VA_CAPS, zeros},
    {NV0080_CTRL_CMD_DMA_GET_CAPS, invalid},
    {NV0080_CTRL_CMD_FB_GET_CAPS_V2, zeros},
    {NV0080_CTRL_CMD_HOST_GET_CAPS_V2, zeros},
    {NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, channel_numbers},
    {NV0080_CTRL_CMD_PERF_CUDA_LIMIT_SET_CONTROL, nothing},
    {NV2080_CTRL_CMD_GPU_GET_INFO_V2, gpu_info},
    {NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING, short_name},
    {NV2080_CTRL_CMD_GPU_GET_SIMULATION_INFO, zeros},
    {NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS, absent},
    {NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES, zeros},
    {NV2080_CTRL_CMD_GPU_ACQUIRE_COMPUTE_MODE_RESERVATION, nothing},
    {NV2080_CTRL_CMD_GPU_RELEASE_COMPUTE_MODE_RESERVATION, nothing},
    {NV2080_CTRL_CMD_GPU_GET_ENGINES_V2, engines},
    {NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS, absent},
    {NV2080_CTRL_CMD_GPU_GET_ID, gpu_id},
    {NV2080_CTRL_CMD_GPU_GET_COMPUTE_POLICY_CONFIG, zeros},
    {NV2080_CTRL_CMD_GET_GPU_FABRIC_PROBE_INFO, zeros},
    {NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION, set_notification},
    {NV2080_CTRL_CMD_TIMER_GET_TIME, card_time},
    {NV2080_CTRL_CMD_TIMER_SET_GR_TICK_FREQ, illegal},
    {NV2080_CTRL_CMD_BIOS_GET_INFO, nothing},
    {NV2080_CTRL_CMD_BUS_GET_INFO, invalid},
    {NV2080_CTRL_CMD_RC_GET_WATCHDOG_INFO, zeros},
    {NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS, link_caps},
    {NV2080_CTRL_CMD_FLCN_GET_CTX_BUFFER_SIZE, of_channel},
    {NV0041_CTRL_CMD_GET_SURFACE_INFO, nothing},
    {NV2080_CTRL_CMD_GR_GET_INFO, gr_info},
    {NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, preemption_mode},
    {NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE, of_channel},
    {NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER, gr_sm_order},
    {NV2080_CTRL_CMD_GR_GET_CAPS_V2, zeros},
    {NV2080_CTRL_CMD_GR_GET_SM_ISSUE_RATE_MODIFIER, zeros}, /* each rate is full speed */
    {NV2080_CTRL_CMD_GR_GET_GPC_MASK, gr_gpc_mask},
    {NV2080_CTRL_CMD_GR_GET_TPC_MASK, gr_tpc_mask},
    {NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO, pci_bars},
    {NV2080_CTRL_CMD_BUS_GET_INFO_V2, bus_info},
    {NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS, zeros},
    {NV2080_CTRL_CMD_BUS_GET_C2C_INFO, zeros},
    {NV2080_CTRL_CMD_PERF_BOOST, nothing},
    {NV2080_CTRL_CMD_RC_RELEASE_WATCHDOG_REQUESTS, nothing},
    {NV2080_CTRL_CMD_RC_SOFT_DISABLE_WATCHDOG, nothing},
    {NV2080_CTRL_CMD_CE_GET_ALL_CAPS, copy_engines},
    {NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS, link_status},
    {NV2080_CTRL_CMD_GSP_GET_FEATURES, zeros},
    {NV2080_CTRL_CMD_GRMGR_GET_GR_FS_INFO, nothing},
    {NV2080_CTRL_CMD_0X20808159, nothing},
    {NV2080_CTRL_CMD_0X20808162, nothing},
    {NV2081_CTRL_CMD_0X20810108, nothing},
    {NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK, nothing},
    {NV906F_CTRL_GET_CLASS_ENGINEID, class_engine},
    {NV906F_CTRL_CMD_RESET_CHANNEL, nothing},
    {NVC36F_CTRL_GET_CLASS_ENGINEID, class_engine},
    {NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, work_token},
    {NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES, zeros},
    {NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_GPUS_STATE, zeros},
    {NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_NUM_SECURE_CHANNELS, not_there},
    {NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_KEY_ROTATION_STATE, not_there},
};

/* The upper half of a command is the class it is for; channels of all kinds take those of their forebears. */
static bool is_for(uint32_t cmd, const struct rm_object *object)
{
    uint32_t class_id = cmd >> 16;

    if (class_has_names(object->class_id))
        return class_id == NV0041_CTRL_CMD_GET_SURFACE_INFO >> 16;
    if (class_is_channel(object->class_id))
        return (class_id & 0xff) == (NVC36F_CTRL_GET_CLASS_ENGINEID >> 16 & 0xff);
    if (object->class_id == MAXWELL_PROFILER_DEVICE)
        return class_id == NVB0CC_CTRL_CMD_EXEC_REG_OPS >> 16;
    return class_id == object->class_id || (!class_id && object->class_id == NV01_ROOT_CLIENT);
}

uint32_t answer_control(const struct rm_request *request, uint32_t cmd)
{
    const struct rm_row *row = rm_control_row(&request->rm->table, cmd);

    /* Of whole cards, video and graphics: nothing is counted here, and what is set changes nothing. */
    if (row && (row->whole || row->capabilities) && is_for(cmd, request->object) &&
        control_is_known(request->rm, cmd))
        return request->params_bytes ? zeros(request) : NV_OK;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        if (answers[i].cmd == cmd && is_for(cmd, request->object))
            return control_is_known(request->rm, cmd) ? answers[i].execute(request) : NV_ERR_NOT_SUPPORTED;
    return NV_ERR_NOT_SUPPORTED;
}

#include "../../native_sched/nvidia/rm/channel.h"
#include "registers.h"
#include "rm.h"

enum {
    PAGE_BYTES = 4096,
    /* What a client can make of these without paying for it in video memory. */
    MAX_CLIENT_DOORBELLS = 32,
    MAX_CLIENT_CHANNELS = 1024,
    COPY_TYPES = 10, /* RM's numbers from COPY0 on; video's follow */
};

uint32_t system_memory_alloc(struct rm_call *call, struct rm_object *object)
{
    struct rm_memory *params = call->params;
    struct rm_client *client = object->client;
    uint32_t location = params->attr >> RM_MEMORY_ATTR_LOCATION_SHIFT & RM_MEMORY_ATTR_LOCATION_MASK;
    uint32_t status = memory_params_status(params);
    uint64_t bytes;

    if (status)
        return status;
    if (location == RM_MEMORY_LOCATION_HOST + 1)
        return NV_ERR_NOT_SUPPORTED;
    if (location == RM_MEMORY_LOCATION_VIDEO || params->size > SIM_MEMORY_BYTES_MAX ||
        params->flags & RM_MEMORY_FLAG_VIRTUAL)
        return NV_ERR_INVALID_ARGUMENT;
    bytes = (params->size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    object->memory = sysmem_create(&client->sysmem, client->root.handle, object->handle, bytes);
    if (!object->memory)
        return NV_ERR_NO_MEMORY;
    params->size = bytes;
    params->limit = bytes - 1;
    params->alignment = PAGE_BYTES;
    return NV_OK;
}

void system_memory_free(struct rm_object *object)
{
    struct sysmem *memory = object->memory;

    if (memory && memory->client == object->client->root.handle && memory->handle == object->handle)
        sysmem_forget(memory);
    else
        sysmem_put(memory);
}

void memory_free(struct rm_object *object)
{
    sysmem_put(object->memory);
}

/* Of a context share or an address space that a group or a channel names. NULL: it is neither. */
static struct vaspace *vaspace_of(struct rm *rm, const struct rm_object *who, uint32_t handle)
{
    const struct rm_object *object = object_find(rm, who->client->root.handle, handle);

    if (!object || (object->class_id != FERMI_VASPACE_A && object->class_id != FERMI_CONTEXT_SHARE_A))
        return NULL;
    return object->vaspace;
}

static bool is_uvms(struct rm *rm, const struct rm_object *who, uint32_t handle)
{
    const struct vaspace *vaspace = handle ? vaspace_of(rm, who, handle) : NULL;

    return vaspace && vaspace_is_uvms(vaspace);
}

uint32_t channel_group_alloc(struct rm_call *call, struct rm_object *object)
{
    const struct rm_channel_group *params = call->params;
    const struct card_profile *profile = object->card->profile;
    bool video = chip_has_video(profile->chip, params->engine_type);
    bool copy = params->engine_type - RM_ENGINE_COPY0 < COPY_TYPES;
    const struct rm_object *vaspace = object_find(call->rm, object->client->root.handle, params->vaspace);
    struct gpu_owner owner = {
        .file = object->client->file->id,
        .client = object->client->root.handle,
        .handle = object->handle,
        .tgid = object->client->tgid,
    };

    if (!copy && !video && params->engine_type != RM_ENGINE_GRAPHICS)
        return NV_ERR_INVALID_ARGUMENT;
    if (params->vaspace && !vaspace)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (vaspace && vaspace->class_id != FERMI_VASPACE_A)
        return NV_ERR_INVALID_OBJECT_HANDLE;
    if (!object_take(object, (uint64_t)(copy || video ? COPY_CONTEXT_MIB : profile->context_mib) << 20))
        return NV_ERR_NO_MEMORY;
    object->group = gpu_group_create(object->card->gpu, params->engine_type, &owner);
    if (!object->group)
        return NV_ERR_NO_MEMORY;
    object->uvms = is_uvms(call->rm, object, params->vaspace);
    object->vaspace = vaspace ? vaspace_take(vaspace->vaspace) : NULL;
    object->bound = copy || video;
    object->engine_type = params->engine_type;
    call->own_us = object->bound ? 0 : call->rm->context_us;
    return NV_OK;
}

void channel_group_free(struct rm_object *object)
{
    if (object->group && !object->alias_next) /* the last of its names */
        gpu_group_free(object->group);
    vaspace_put(object->vaspace);
}

/* Of an address space of GA102's. */
#define VASPACE_BASE UINT64_C(0x100000)
#define VASPACE_END  (UINT64_C(1) << 49)

/* NV_VASPACE_ALLOCATION_PARAMETERS. */
struct vaspace_params {
    uint32_t index, flags;
    uint64_t size, start, limit;
    uint32_t big_page_bytes, pad;
    uint64_t base;
};

/* What is refused as GA102's RM refuses it. */
static uint32_t vaspace_status(const struct vaspace_params *params)
{
    enum { NEW = 0, OF_DEVICE = 2, LAST = 3 };
    enum { BY_CPU_TABLES = 1 << 4, MIRRORED = 1 << 5, FAULTING = 1 << 6, SMALLEST = 128 << 20 };
    bool uvms = params->flags & RM_VASPACE_EXTERNALLY_OWNED; /* who answers its faults */

    if (params->index > LAST)
        return NV_ERR_INVALID_STATE;
    if ((params->index != NEW && params->index != OF_DEVICE) || params->flags & BY_CPU_TABLES ||
        (params->flags & FAULTING && !uvms))
        return NV_ERR_INVALID_ARGUMENT;
    if (params->flags & MIRRORED)
        return NV_ERR_ILLEGAL_ACTION;
    if ((params->size && params->size < SMALLEST) ||
        (params->big_page_bytes && params->big_page_bytes != 64 << 10 && params->big_page_bytes != 128 << 10))
        return NV_ERR_INVALID_ARGUMENT;
    return NV_OK;
}

uint32_t vaspace_alloc(struct rm_call *call, struct rm_object *object)
{
    struct vaspace_params *params = call->params;
    bool whole = call->params_bytes >= sizeof *params;
    uint32_t status = whole ? vaspace_status(params) : NV_OK;

    if (!call->params_bytes)
        return NV_ERR_INVALID_ARGUMENT;
    if (status)
        return status;
    object->vaspace = vaspace_create();
    if (!object->vaspace)
        return NV_ERR_NO_MEMORY;
    if (call->params_bytes >= 2 * sizeof(uint32_t) && params->flags & RM_VASPACE_EXTERNALLY_OWNED)
        vaspace_leave_to_uvm(object->vaspace);
    if (whole) {
        params->base = VASPACE_BASE;
        params->size = VASPACE_END - VASPACE_BASE;
    }
    return NV_OK;
}

uint32_t context_share_alloc(struct rm_call *call, struct rm_object *object)
{
    enum { ASYNCHRONOUS = 1, SPECIFIED = 2, HIGHEST = 63 };
    struct rm_context_share *params = call->params;
    const struct rm_object *vaspace;

    if (call->params_bytes < sizeof *params)
        return NV_ERR_INVALID_ARGUMENT;
    if (params->flags > SPECIFIED)
        return NV_ERR_INVALID_ARGUMENT;
    if (!params->vaspace)
        return NV_ERR_NO_MEMORY;
    vaspace = object_find(call->rm, object->client->root.handle, params->vaspace);
    if (!vaspace)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (vaspace->class_id != FERMI_VASPACE_A)
        return NV_ERR_INVALID_OBJECT_HANDLE;
    if (params->flags == ASYNCHRONOUS)
        params->subcontext = HIGHEST; /* RM's first; a simulated group runs all alike */
    object->vaspace = vaspace_take(vaspace->vaspace);
    return NV_OK;
}

void vaspace_free(struct rm_object *object)
{
    vaspace_put(object->vaspace);
}

uint32_t channel_alloc(struct rm_call *call, struct rm_object *object)
{
    struct rm_channel read = {0};
    const struct rm_channel *params = &read;
    struct rm_client *client = object->client;
    struct gpu_channel_layout layout;
    const struct rm_object *userd;
    struct vaspace *vaspace = NULL;
    uint32_t named;

    if (!chip_lists(object->card->profile->chip, call->rm->major, call->rm->minor, object->class_id))
        return NV_ERR_INVALID_CLASS;
    if (call->params_bytes && (int)call->params_bytes != rm_class_params(&call->rm->table, object->class_id))
        return NV_ERR_INVALID_ARGUMENT;
    if (call->params_bytes)
        rm_channel_read(&call->rm->table, call->params, &read);
    if (params->vaspace && (params->context_share || object->parent->class_id == KEPLER_CHANNEL_GROUP_A))
        return NV_ERR_INVALID_ARGUMENT; /* "TSG channels can't use an explicit vaspace" */
    named = params->context_share ? params->context_share : params->vaspace;
    object->uvms = named ? is_uvms(call->rm, object, named) : object->parent->uvms;
    object->bound = object->parent->bound;
    object->engine_type = object->parent->engine_type;
    if (!call->params_bytes || !params->userd_memory[0])
        return NV_OK; /* executes nothing */
    layout = (struct gpu_channel_layout){
        .userd_at = params->userd_offset[0],
        .ring_at = params->gpfifo_offset,
        .entries = params->gpfifo_entries,
        .shows_get = registers_show_get(object->card->profile->chip, object->class_id),
    };
    if (named) {
        vaspace = vaspace_of(call->rm, object, named);
        if (!vaspace)
            return NV_ERR_INVALID_OBJECT_HANDLE;
    }
    userd = object_find(call->rm, client->root.handle, params->userd_memory[0]);
    if (!userd || !class_has_names(userd->class_id) || !userd->memory || !sysmem_reach(userd->memory))
        return NV_ERR_INVALID_ARGUMENT;
    /* The simulated libcuda has its rings beside USERD, in no space; a ring elsewhere lies in its group's. */
    if (!named && !gpu_layout_fits(&layout, userd->memory->bytes, NULL))
        vaspace = object->parent->vaspace;
    if (!gpu_layout_fits(&layout, userd->memory->bytes, vaspace))
        return NV_ERR_INVALID_ARGUMENT;
    if (gpu_runlist_is_full(object->parent->group))
        return NV_ERR_NO_FREE_FIFOS;
    if (client->channels < MAX_CLIENT_CHANNELS)
        object->channel = gpu_channel_create(object->parent->group, userd->memory, &layout, vaspace);
    client->channels += object->channel != NULL;
    return object->channel ? NV_OK : NV_ERR_NO_MEMORY;
}

void channel_free(struct rm_object *object)
{
    if (!object->channel)
        return;
    gpu_channel_free(object->channel);
    object->client->channels--;
}

uint32_t usermode_alloc(struct rm_call *call, struct rm_object *object)
{
    struct rm_client *client = object->client;

    (void)call;
    if (client->doorbells < MAX_CLIENT_DOORBELLS)
        object->doorbell = gpu_doorbell_create(object->card->gpu, client->root.handle);
    client->doorbells += object->doorbell != NULL;
    return object->doorbell ? NV_OK : NV_ERR_NO_MEMORY;
}

void usermode_free(struct rm_object *object)
{
    if (!object->doorbell)
        return;
    gpu_doorbell_free(object->doorbell);
    object->client->doorbells--;
}

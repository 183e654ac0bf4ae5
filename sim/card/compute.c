#include "../../native_sched/rm/channel.h"
#include "rm.h"

enum {
    PAGE_BYTES = 4096,
    /* What a client can make of these without paying for it in video memory. */
    MAX_CLIENT_DOORBELLS = 32,
    MAX_CLIENT_CHANNELS = 1024,
};

bool class_is_channel(uint32_t class_id)
{
    return rm_class_is_channel(class_id);
}

bool class_is_usermode(uint32_t class_id)
{
    return class_id == VOLTA_USERMODE_A || class_id == TURING_USERMODE_A || class_id == AMPERE_USERMODE_A ||
           class_id == HOPPER_USERMODE_A || class_id == BLACKWELL_USERMODE_A;
}

uint32_t system_memory_alloc(struct rm_call *call, struct rm_object *object)
{
    struct rm_memory *params = call->params;
    struct rm_client *client = object->client;
    uint64_t bytes;

    if (!params->size || params->size > SIM_MEMORY_BYTES_MAX || params->flags & RM_MEMORY_FLAG_VIRTUAL)
        return NV_ERR_INVALID_ARGUMENT;
    bytes = (params->size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    object->memory = sysmem_create(&client->sysmem, client->root.handle, object->handle, bytes);
    if (!object->memory)
        return NV_ERR_NO_MEMORY;
    params->size = bytes;
    params->limit = bytes - 1;
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

uint32_t channel_group_alloc(struct rm_call *call, struct rm_object *object)
{
    const struct rm_channel_group *params = call->params;
    const struct card_profile *profile = object->card->profile;
    bool copy = params->engine_type >= RM_ENGINE_COPY0;
    struct gpu_owner owner = {
        .file = object->client->file->id,
        .client = object->client->root.handle,
        .handle = object->handle,
        .tgid = object->client->tgid,
    };

    if (!copy && params->engine_type && params->engine_type != RM_ENGINE_GRAPHICS)
        return NV_ERR_INVALID_ARGUMENT;
    if (!object_take(object, (uint64_t)(copy ? profile->copy_context_mib : profile->context_mib) << 20))
        return NV_ERR_NO_MEMORY;
    object->group = gpu_group_create(object->card->gpu, copy ? SIM_ENGINE_COPY : SIM_ENGINE_GRAPHICS, &owner);
    if (!object->group)
        return NV_ERR_NO_MEMORY;
    call->own_us = copy ? 0 : call->rm->context_us;
    return NV_OK;
}

void channel_group_free(struct rm_object *object)
{
    if (object->group)
        gpu_group_free(object->group);
}

uint32_t channel_alloc(struct rm_call *call, struct rm_object *object)
{
    struct rm_channel read = {0};
    const struct rm_channel *params = &read;
    struct rm_client *client = object->client;
    struct gpu_channel_layout layout;
    struct sysmem *memory;

    if (!chip_lists(object->card->profile->chip, call->rm->major, call->rm->minor, object->class_id))
        return NV_ERR_INVALID_CLASS;
    if (call->params_bytes && (int)call->params_bytes != rm_class_params(&call->rm->table, object->class_id))
        return NV_ERR_INVALID_ARGUMENT;
    if (call->params_bytes)
        rm_channel_read(&call->rm->table, call->params, &read);
    if (!call->params_bytes || !params->userd_memory[0])
        return NV_OK; /* executes nothing */
    layout = (struct gpu_channel_layout){params->userd_offset[0], params->gpfifo_offset,
                                         params->gpfifo_entries};
    memory = sysmem_get(client->root.handle, params->userd_memory[0]);
    if (!memory)
        return NV_ERR_INVALID_ARGUMENT;
    if (!gpu_layout_fits(&layout, memory->bytes)) {
        sysmem_put(memory);
        return NV_ERR_INVALID_ARGUMENT;
    }
    if (client->channels < MAX_CLIENT_CHANNELS)
        object->channel = gpu_channel_create(object->parent->group, memory, &layout);
    sysmem_put(memory);
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

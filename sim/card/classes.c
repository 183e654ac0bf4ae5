#include "rm.h"

typedef uint32_t (*construct_fn)(struct rm_call *call, struct rm_object *object);
typedef void (*release_fn)(struct rm_object *object);

static uint32_t device(struct rm_call *call, struct rm_object *object)
{
    const struct rm_device *params = call->params;

    if (params->id >= call->rm->card_count)
        return RM_ERR_INVALID_DEVICE;
    object->card = &call->rm->cards[params->id];
    call->own_us = call->rm->init_us;
    return RM_OK;
}

static uint32_t subdevice(struct rm_call *call, struct rm_object *object)
{
    const struct rm_subdevice *params = call->params;

    (void)object;
    return params->id ? RM_ERR_INVALID_ARGUMENT : RM_OK;
}

static uint32_t memory(struct rm_call *call, struct rm_object *object)
{
    struct rm_memory *params = call->params;
    uint32_t location = params->attr >> RM_MEMORY_ATTR_LOCATION_SHIFT & RM_MEMORY_ATTR_LOCATION_MASK;

    if (location || params->flags & RM_MEMORY_FLAG_VIRTUAL || !params->size)
        return RM_ERR_INVALID_ARGUMENT;
    if (!object_take(object, params->size))
        return RM_ERR_NO_MEMORY;
    params->size = object->bytes;
    params->limit = object->bytes - 1;
    return RM_OK;
}

enum { ANY_CHANNEL = RM_CLASS_CHANNEL_VOLTA }; /* stands for the channels of every architecture */

/* Without `exact`, parameters that are not the size of this driver's version are accepted, and not looked at. */
static const struct class_rule {
    uint32_t class_id, parent_class;
    bool exact;
    construct_fn construct;
    release_fn release;
} rules[] = {
    {RM_CLASS_DEVICE, RM_CLASS_ROOT_CLIENT, true, device, NULL},
    {RM_CLASS_SUBDEVICE, RM_CLASS_DEVICE, true, subdevice, NULL},
    {RM_CLASS_MEMORY_LOCAL_USER, RM_CLASS_DEVICE, true, memory, NULL},
    {RM_CLASS_MEMORY_SYSTEM, RM_CLASS_DEVICE, true, system_memory_alloc, system_memory_free},
    {RM_CLASS_VASPACE, RM_CLASS_DEVICE, false, NULL, NULL},
    {RM_CLASS_CHANNEL_GROUP, RM_CLASS_DEVICE, true, channel_group_alloc, channel_group_free},
    {RM_CLASS_CHANNEL_VOLTA, RM_CLASS_CHANNEL_GROUP, false, channel_alloc, channel_free},
    {RM_CLASS_CHANNEL_TURING, RM_CLASS_CHANNEL_GROUP, false, channel_alloc, channel_free},
    {RM_CLASS_CHANNEL_AMPERE, RM_CLASS_CHANNEL_GROUP, false, channel_alloc, channel_free},
    {RM_CLASS_CHANNEL_HOPPER, RM_CLASS_CHANNEL_GROUP, false, channel_alloc, channel_free},
    {RM_CLASS_CHANNEL_BLACKWELL, RM_CLASS_CHANNEL_GROUP, false, channel_alloc, channel_free},
    {RM_CLASS_USERMODE_VOLTA, RM_CLASS_SUBDEVICE, false, usermode_alloc, usermode_free},
    {RM_CLASS_USERMODE_TURING, RM_CLASS_SUBDEVICE, false, usermode_alloc, usermode_free},
    {RM_CLASS_USERMODE_AMPERE, RM_CLASS_SUBDEVICE, false, usermode_alloc, usermode_free},
    {RM_CLASS_USERMODE_HOPPER, RM_CLASS_SUBDEVICE, false, usermode_alloc, usermode_free},
    {RM_CLASS_USERMODE_BLACKWELL, RM_CLASS_SUBDEVICE, false, usermode_alloc, usermode_free},
    /* There, and that is all: a start of libcuda makes them. */
    {RM_CLASS_BINAPI, RM_CLASS_SUBDEVICE, false, NULL, NULL},
    {RM_CLASS_CONFIDENTIAL_COMPUTE, RM_CLASS_ROOT_CLIENT, false, NULL, NULL},
    {RM_CLASS_CONTEXT_SHARE, RM_CLASS_CHANNEL_GROUP, false, NULL, NULL},
    {RM_CLASS_DEBUGGER, RM_CLASS_DEVICE, false, NULL, NULL},
    {RM_CLASS_EVENT_OS, RM_CLASS_SUBDEVICE, false, NULL, NULL},
    {RM_CLASS_MEMORY_VIRTUAL, RM_CLASS_DEVICE, false, NULL, NULL},
    {RM_CLASS_COMPUTE_VOLTA, ANY_CHANNEL, false, NULL, NULL},
    {RM_CLASS_COPY_VOLTA, ANY_CHANNEL, false, NULL, NULL},
};

static const struct class_rule *rule_of(uint32_t class_id)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].class_id == class_id)
            return &rules[i];
    return NULL;
}

static bool below(const struct class_rule *rule, const struct rm_object *above)
{
    if (rule->parent_class == ANY_CHANNEL)
        return class_is_channel(above->class_id);
    return above->class_id == rule->parent_class;
}

void class_release(struct rm_object *object)
{
    const struct class_rule *rule = rule_of(object->class_id);

    if (rule && rule->release)
        rule->release(object);
}

static uint32_t alloc_client(struct rm_call *call, uint32_t *handle)
{
    struct rm_client *client;

    if (*handle && client_handle_taken(call->rm, *handle))
        return RM_ERR_INSERT_DUPLICATE_NAME;
    client = client_create(call->rm, call->file, *handle, call->tgid);
    if (!client)
        return RM_ERR_NO_MEMORY;
    *handle = client->root.handle;
    return RM_OK;
}

uint32_t class_alloc(struct rm_call *call, uint32_t root, uint32_t parent, uint32_t *handle,
                     uint32_t class_id)
{
    const struct class_rule *rule;
    struct rm_client *client;
    struct rm_object *object, *above;
    uint32_t name, status;

    /* 0, 1 (non-privileged) and 0x41 all make a root client. */
    if (class_id <= 1 || class_id == RM_CLASS_ROOT_CLIENT)
        return alloc_client(call, handle);
    client = client_find(call->rm, root, call->file);
    if (!client)
        return RM_ERR_INVALID_CLIENT;
    above = object_find(call->rm, root, parent);
    if (!above)
        return RM_ERR_OBJECT_NOT_FOUND;
    rule = rule_of(class_id);
    if (!rule)
        return RM_ERR_INVALID_CLASS;
    if (!below(rule, above))
        return RM_ERR_INVALID_OBJECT_PARENT;
    if (rule->exact && (int)call->params_bytes != rm_class_params(&call->rm->table, class_id))
        return RM_ERR_INVALID_PARAM_STRUCT;
    if (*handle && object_find(call->rm, root, *handle))
        return RM_ERR_INSERT_DUPLICATE_NAME;
    name = *handle ? *handle : object_new_handle(call->rm, client);
    object = object_create(call->rm, above, name, class_id);
    if (!object)
        return RM_ERR_NO_MEMORY;
    status = RM_OK;
    if (rule->construct && !(object->card && object->card->lost))
        status = rule->construct(call, object);
    if (!status && object->card && object->card->lost)
        status = RM_ERR_GPU_IS_LOST;
    if (status) {
        object_free(call->rm, object);
        return status;
    }
    *handle = name;
    return RM_OK;
}

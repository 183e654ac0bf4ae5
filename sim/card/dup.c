#include "rm.h"
#include <string.h>

struct rm_object *object_alias(struct rm *rm, struct rm_object *parent, uint32_t handle,
                               struct rm_object *source)
{
    struct rm_object *object = object_create(rm, parent, handle, source->class_id);

    if (!object)
        return NULL;
    object->release = source->release;
    object->memory_bytes = source->memory_bytes;
    if (class_has_names(source->class_id) && source->memory)
        object->memory = sysmem_take(source->memory);
    if (source->vaspace)
        object->vaspace = vaspace_take(source->vaspace);
    if (source->class_id == KEPLER_CHANNEL_GROUP_A) {
        object->group = source->group;
        object->uvms = source->uvms;
        object->bound = source->bound;
    }
    object->alias_prev = source;
    object->alias_next = source->alias_next ? source->alias_next : source;
    object->alias_next->alias_prev = object;
    source->alias_next = object;
    return object;
}

/* As RM by default: a process may have other names for what it made itself. */
bool may_dup(const struct rm_object *source, const struct rm_client *to)
{
    const struct rm_client *from = source->client;
    uint32_t shared;

    if (from == to)
        return true;
    while (source && !source->share_said)
        source = source->parent;
    shared = source ? source->shared : 1u << RM_SHARE_TYPE_PID;
    for (int i = 0; source && i < RM_SHARES; i++)
        if (source->shared_with[i] == to->root.handle)
            return true;
    return shared & 1u << RM_SHARE_TYPE_ALL || (shared & 1u << RM_SHARE_TYPE_PID && from->tgid == to->tgid) ||
           (shared & 1u << RM_SHARE_TYPE_TOKEN && from->uid == to->uid && to->uid != UINT32_MAX);
}

static uint32_t dup_to(struct rm_call *call, struct rm_dup *dup)
{
    struct rm_client *to = client_find(call->rm, dup->client, call->file);
    struct rm_object *source = object_find(call->rm, dup->source_client, dup->source_handle), *parent;
    uint32_t handle = dup->handle;

    if (!to)
        return client_status(call->rm, dup->client, call->file);
    if (!client_handle_taken(call->rm, dup->source_client))
        return NV_ERR_INVALID_OBJECT_HANDLE;
    parent = object_find(call->rm, dup->client, dup->parent);
    if (!parent || !source)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (source->card && source->card->lost)
        return NV_ERR_GPU_IS_LOST;
    if (class_is_unique(source->class_id))
        return NV_ERR_INVALID_ARGUMENT;
    if (!class_is_shared(source->class_id) && !class_is_usermode(source->class_id))
        return NV_ERR_NOT_SUPPORTED;
    if (parent->class_id != (class_is_usermode(source->class_id) ? NV20_SUBDEVICE_0 : NV01_DEVICE_0) ||
        (source->class_id == NV01_MEMORY_LOCAL_USER && parent->card != source->card))
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (!may_dup(source, to))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    if (handle && object_find(call->rm, dup->client, handle))
        return NV_ERR_INSERT_DUPLICATE_NAME;
    handle = handle ? handle : object_new_handle(call->rm, to);
    if (!object_alias(call->rm, parent, handle, source))
        return NV_ERR_NO_MEMORY;
    dup->handle = handle;
    return NV_OK;
}

int dup_object(struct rm_call *call)
{
    struct rm_dup *dup = call->outer;

    dup->status = dup_to(call, dup);
    return 0;
}

/* A list of its own begins as that of the object above, or empty (clientShareResource_IMPL() in
 * rs_client.c). */
static void begin_list(struct rm_object *object, bool composed)
{
    const struct rm_object *from = object;

    while (from && !from->share_said)
        from = from->parent;
    if (!composed) {
        object->shared = 0;
        memset(object->shared_with, 0, sizeof object->shared_with);
    } else if (from != object) {
        object->shared = from ? from->shared : 1u << RM_SHARE_TYPE_PID;
        if (from)
            memcpy(object->shared_with, from->shared_with, sizeof object->shared_with);
    }
    object->share_said = true;
}

static uint32_t share(struct rm *rm, struct rm_object *object, const struct rm_share_policy *p)
{
    bool revoke = p->action & RM_SHARE_REVOKE;

    if (p->type >= 8)
        return NV_ERR_INVALID_ARGUMENT;
    if (p->type == RM_SHARE_TYPE_CLIENT && !client_handle_taken(rm, p->target))
        return p->target ? NV_ERR_INVALID_OBJECT_HANDLE : NV_ERR_INVALID_OBJECT;
    begin_list(object, p->action & RM_SHARE_COMPOSE);
    if (!(p->access_mask & RM_SHARE_ACCESS_DUP) || p->action & RM_SHARE_REQUIRE)
        return NV_OK;
    if (p->type != RM_SHARE_TYPE_CLIENT) {
        object->shared = revoke ? object->shared & ~(1u << p->type) : object->shared | 1u << p->type;
        return NV_OK;
    }
    for (int i = 0; i < RM_SHARES; i++)
        if (object->shared_with[i] == p->target)
            object->shared_with[i] = 0;
    for (int i = 0; i < RM_SHARES && !revoke; i++)
        if (!object->shared_with[i]) {
            object->shared_with[i] = p->target;
            return NV_OK;
        }
    return revoke ? NV_OK : NV_ERR_NO_MEMORY;
}

uint32_t inherited_share(const struct rm_request *request)
{
    return share(request->rm, request->object, request->params);
}

int share_object(struct rm_call *call)
{
    struct rm_share *request = call->outer;
    struct rm_object *object = object_find(call->rm, request->client, request->handle);

    request->status = client_status(call->rm, request->client, call->file);
    if (!request->status)
        request->status = object ? share(call->rm, object, &request->policy) : NV_ERR_OBJECT_NOT_FOUND;
    return 0;
}

/* Who is next in the ring has the memory from now on. */
void leave_aliases(struct rm_object *object)
{
    struct rm_object *next = object->alias_next, *prev = object->alias_prev;

    if (!next)
        return;
    if (object->bytes) {
        next->bytes = object->bytes;
        object->bytes = 0;
    }
    next->alias_prev = next == prev ? NULL : prev;
    prev->alias_next = next == prev ? NULL : next;
}

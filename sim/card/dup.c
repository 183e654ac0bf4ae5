#include "rm.h"

/* As RM by default: a process may have other names for what it made itself, and whoever it shared it with. */
static bool may_dup(const struct rm_object *source, const struct rm_client *to)
{
    for (int i = 0; i < RM_SHARES; i++)
        if (source->shared_with[i] == to->root.handle)
            return true;
    return source->client->tgid == to->tgid;
}

static uint32_t dup_to(struct rm_call *call, struct rm_dup *dup)
{
    struct rm_client *to = client_find(call->rm, dup->client, call->file);
    struct rm_object *source = object_find(call->rm, dup->source_client, dup->source_handle), *parent,
                     *object;
    uint32_t handle = dup->handle;

    if (!to)
        return RM_ERR_INVALID_CLIENT;
    parent = object_find(call->rm, dup->client, dup->parent);
    if (!parent || !source)
        return RM_ERR_OBJECT_NOT_FOUND;
    if (source->card && source->card->lost)
        return RM_ERR_GPU_IS_LOST;
    if (source->class_id != RM_CLASS_MEMORY_LOCAL_USER)
        return RM_ERR_NOT_SUPPORTED;
    if (parent->class_id != RM_CLASS_DEVICE || parent->card != source->card)
        return RM_ERR_INVALID_OBJECT_PARENT;
    if (!may_dup(source, to))
        return RM_ERR_INSUFFICIENT_PERMISSIONS;
    if (handle && object_find(call->rm, dup->client, handle))
        return RM_ERR_INSERT_DUPLICATE_NAME;
    handle = handle ? handle : object_new_handle(call->rm, to);
    object = object_create(call->rm, parent, handle, source->class_id);
    if (!object)
        return RM_ERR_NO_MEMORY;
    object->alias_prev = source;
    object->alias_next = source->alias_next ? source->alias_next : source;
    object->alias_next->alias_prev = object;
    source->alias_next = object;
    dup->handle = handle;
    return RM_OK;
}

int dup_object(struct rm_call *call)
{
    struct rm_dup *dup = call->outer;

    dup->status = dup_to(call, dup);
    return 0;
}

static uint32_t share(struct rm_call *call, const struct rm_share *share)
{
    struct rm_object *object;
    bool revoke = share->action & RM_SHARE_REVOKE || !(share->access_mask & RM_SHARE_ACCESS_DUP);

    if (!client_find(call->rm, share->client, call->file))
        return RM_ERR_INVALID_CLIENT;
    object = object_find(call->rm, share->client, share->handle);
    if (!object)
        return RM_ERR_OBJECT_NOT_FOUND;
    if (share->type != RM_SHARE_TYPE_CLIENT || !share->target)
        return RM_ERR_NOT_SUPPORTED;
    for (int i = 0; i < RM_SHARES; i++)
        if (object->shared_with[i] == share->target)
            object->shared_with[i] = 0;
    for (int i = 0; i < RM_SHARES && !revoke; i++)
        if (!object->shared_with[i]) {
            object->shared_with[i] = share->target;
            return RM_OK;
        }
    return revoke ? RM_OK : RM_ERR_NO_MEMORY;
}

int share_object(struct rm_call *call)
{
    struct rm_share *request = call->outer;

    request->status = share(call, request);
    return 0;
}

/* Who is next in the ring has the memory from now on. */
void leave_aliases(struct rm_object *object)
{
    struct rm_object *next = object->alias_next, *prev = object->alias_prev;

    if (!next)
        return;
    if (object->bytes) {
        object->client->bytes[object->card->index] -= object->bytes;
        next->client->bytes[next->card->index] += object->bytes;
        next->bytes = object->bytes;
        object->bytes = 0;
    }
    next->alias_prev = next == prev ? NULL : prev;
    prev->alias_next = next == prev ? NULL : next;
}

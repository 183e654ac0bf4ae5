/* The driver's part in memory with several names: duplicates, and what open files keep. */
#include "../../native_sched/nvidia/rm/export_abi.h"
#include "world.h"

static struct export_file *set_up(uint64_t file)
{
    for (int i = 0; i < EXPORT_FILES; i++)
        if (world.exports[i].file == file)
            return &world.exports[i];
    return NULL;
}

static bool has_names(uint32_t class_id)
{
    return class_id == NV01_MEMORY_LOCAL_USER || class_id == NV01_MEMORY_SYSTEM;
}

/* Of the memory that `what` is; in the client of `parent`. */
static uint32_t add_name(uint64_t file, int parent, uint32_t handle, const struct node *what)
{
    int slot = 0;

    while (slot < NODES && world.node[slot].live)
        slot++;
    if (slot == NODES)
        return NV_ERR_NO_MEMORY;
    if (!handle)
        broken("the driver is to choose a name that the mediator could not take back");
    if (model_find(world.node[parent].client, handle) >= 0)
        return NV_ERR_INSERT_DUPLICATE_NAME;
    if (world.node[parent].class_id != NV01_DEVICE_0)
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (what->bytes && what->card != world.node[parent].card)
        broken("memory of card %u is to be had on card %u", what->card, world.node[parent].card);
    world.node[slot] = *what;
    world.node[slot].live = true;
    world.node[slot].file = file;
    world.node[slot].client = world.node[parent].client;
    world.node[slot].handle = handle;
    world.node[slot].parent = parent;
    world.node[slot].card = world.node[parent].card;
    world.node[slot].shared_with = 0;
    return NV_OK;
}

uint32_t model_dup(const struct driver_call *call, const struct rm_dup *d)
{
    int source = model_find(d->source_client, d->source_handle), parent = model_find(d->client, d->parent);

    if (model_find_client(d->client, call->file->id) < 0)
        return NV_ERR_INVALID_CLIENT;
    if (source < 0 || parent < 0)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (!has_names(world.node[source].class_id))
        broken("class %x is to be duplicated", world.node[source].class_id);
    if (d->client != d->source_client && world.node[source].shared_with != d->client)
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    return add_name(call->file->id, parent, d->handle, &world.node[source]);
}

/* One client is enough for a list. */
uint32_t model_share(const struct driver_call *call, const struct rm_share *s)
{
    const struct rm_share_policy *p = &s->policy;
    int i = model_find(s->client, s->handle);

    if (model_find_client(s->client, call->file->id) < 0)
        return NV_ERR_INVALID_CLIENT;
    if (i < 0)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (p->access_mask & RM_SHARE_ACCESS_DUP && !(p->action & RM_SHARE_REQUIRE) &&
        (p->type == RM_SHARE_TYPE_ALL || p->type == RM_SHARE_TYPE_GPU || p->type == RM_SHARE_TYPE_PARTITION))
        broken("the driver is told to share %x:%x with everybody", s->client, s->handle);
    if (p->type == RM_SHARE_TYPE_CLIENT && p->action & RM_SHARE_REVOKE)
        world.node[i].shared_with = 0;
    else if (p->type == RM_SHARE_TYPE_CLIENT)
        world.node[i].shared_with = p->target;
    return NV_OK;
}

static uint32_t export_one(const struct driver_call *call, uint32_t client)
{
    const struct rm_export_objects *p = (const void *)call->params;
    struct export_file *f = set_up(call->aux_file->id);
    int i = p->object[0] ? model_find(client, p->object[0]) : -1;

    if (p->count != 1)
        broken("%u objects are exported at once", p->count);
    if (!f && !p->max)
        return NV_ERR_INVALID_PARAMETER;
    if (p->object[0] && i < 0)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (i >= 0 && !has_names(world.node[i].class_id))
        broken("class %x is to be exported", world.node[i].class_id);
    if (!f) {
        if (!(f = set_up(0)))
            return NV_ERR_NO_MEMORY;
        *f = (struct export_file){.file = call->aux_file->id, .places = p->max};
    }
    if (p->index >= f->places || p->index >= EXPORT_PLACES)
        return NV_ERR_OUT_OF_RANGE;
    f->at[p->index] = i < 0 ? (struct node){.live = false} : world.node[i];
    return NV_OK;
}

static uint32_t import_one(const struct driver_call *call, uint32_t client)
{
    const struct rm_import_objects *p = (const void *)call->params;
    const struct export_file *f = set_up(call->aux_file->id);
    int parent = model_find(client, p->parent);

    if (p->count != 1 || !f || p->index >= EXPORT_PLACES || !f->at[p->index].live)
        broken("an import of %u objects where there are none", p->count);
    if (parent < 0)
        return NV_ERR_OBJECT_NOT_FOUND;
    return add_name(call->file->id, parent, p->object[0], &f->at[p->index]);
}

bool model_exports(const struct driver_call *call, uint32_t client, uint32_t cmd, uint32_t *status)
{
    if (cmd != NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD &&
        cmd != NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD)
        return false;
    if (!call->aux_file || call->aux_file->tenant != call->file->tenant || call->aux_file->kind != NODE_CTL)
        broken("an export to a file that is not the tenant's");
    *status = cmd == NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD ? export_one(call, client)
                                                                  : import_one(call, client);
    return true;
}

void model_exports_gone(uint64_t file)
{
    struct export_file *f = set_up(file);

    if (f)
        *f = (struct export_file){.file = 0};
}

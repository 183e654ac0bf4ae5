#include "rm.h"
#include <errno.h>
#include <fcntl.h>

enum { PAGE_MASK = 4095, DOORBELLS_BYTES = 64 << 10, ACCESS_MASK = 3, NO_ACCESS = 3 };

/* The process that made a client maps what the client has: host memory by a control file, and what a card has
 * by a file of that card (rm_create_mmap_context() in osapi.c, nv_add_mapping_context_to_file() in nv.c).
 * mgpud maps for its tenants, and names no process. */
static uint32_t file_status(const struct rm_call *call, const struct rm_object *object)
{
    const struct sim_file *file = file_find(call->rm, call->aux_file);
    bool host = object->class_id == NV01_MEMORY_SYSTEM ||
                object->class_id == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;

    if (call->tgid && object->client->tgid != call->tgid)
        return NV_ERR_INVALID_CLIENT;
    if (!file || file->node != (host ? SIM_NODE_CTL : SIM_NODE_CARD))
        return NV_ERR_INVALID_ARGUMENT;
    return host || file->card == object->card ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

static uint32_t map_bytes(struct rm_call *call, struct rm_map_memory *map, const struct rm_object *object)
{
    uint32_t status = file_status(call, object);
    uint64_t bytes;

    if (!object->memory)
        return NV_ERR_NOT_SUPPORTED;
    bytes = object->memory->bytes;
    if (map->offset >= bytes)
        return NV_ERR_INVALID_BASE;
    if (!map->length || map->length > bytes - map->offset)
        return NV_ERR_INVALID_LIMIT;
    if (map->offset & PAGE_MASK)
        return NV_ERR_INVALID_ARGUMENT;
    if (status)
        return status;
    if (!sysmem_reach(object->memory))
        return NV_ERR_NO_MEMORY;
    call->reply_fd = memfd_reopen(object->memory->fd, O_RDWR);
    map->linear = map->offset;
    return call->reply_fd < 0 ? NV_ERR_NO_MEMORY : NV_OK;
}

static uint32_t map_doorbell(struct rm_call *call, struct rm_map_memory *map, const struct rm_object *object)
{
    uint32_t status = file_status(call, object);

    if (!map->length || map->length > DOORBELLS_BYTES)
        return NV_ERR_INVALID_LIMIT;
    if (status)
        return status;
    /* A program that stores to it asks for the whole region, and one that writes to a file for one page. */
    call->reply_fd = map->length > PAGE_MASK + 1 ? gpu_doorbell_page(object->doorbell)
                                                 : gpu_doorbell_fd(object->doorbell);
    map->linear = 0;
    return call->reply_fd < 0 ? NV_ERR_NO_MEMORY : NV_OK;
}

static uint32_t map_object(struct rm_call *call, struct rm_map_memory *map)
{
    const struct rm_object *object, *device;
    uint32_t status = client_status(call->rm, map->client, call->file);

    if (status)
        return status;
    device = object_find(call->rm, map->client, map->device);
    object = object_find(call->rm, map->client, map->memory);
    if (!device || !object)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (object->card && object->card->lost)
        return NV_ERR_GPU_IS_LOST;
    if ((device->class_id != NV01_DEVICE_0 && device->class_id != NV20_SUBDEVICE_0) || device == object)
        return NV_ERR_INVALID_OBJECT_PARENT;
    if ((map->flags & ACCESS_MASK) == NO_ACCESS)
        return NV_ERR_INVALID_FLAGS;
    if (object_device(device) != object_device(object))
        return NV_ERR_INVALID_DEVICE;
    if (class_has_names(object->class_id))
        return map_bytes(call, map, object);
    if (class_is_usermode(object->class_id))
        return map_doorbell(call, map, object);
    return NV_ERR_NOT_SUPPORTED;
}

int map_memory(struct rm_call *call)
{
    struct rm_map_memory *map = call->outer;

    map->status = map_object(call, map);
    if (map->status)
        call->reply_fd = -1;
    return 0;
}

/* What is mapped is the program's until it unmaps it itself. */
int unmap_memory(struct rm_call *call)
{
    struct rm_unmap_memory *unmap = call->outer;

    unmap->status = client_status(call->rm, unmap->client, call->file);
    if (!unmap->status && !(object_find(call->rm, unmap->client, unmap->memory) &&
                            object_find(call->rm, unmap->client, unmap->device)))
        unmap->status = NV_ERR_OBJECT_NOT_FOUND;
    return 0;
}

int userd_fd(struct rm *rm, uint64_t file_id, const struct sim_userd_of *of, uint64_t *offset)
{
    const struct sim_file *file = file_find(rm, file_id);
    const struct rm_object *object;

    if (!file)
        return -EBADF;
    if (!client_find(rm, of->client, file))
        return -ENOENT;
    object = object_find(rm, of->client, of->channel);
    if (!object || !class_is_channel(object->class_id) || !object->channel)
        return -ENOENT;
    return gpu_channel_userd(object->channel, offset);
}

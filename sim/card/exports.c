/* Objects that are exported through a control file: another name of their memory, in a client that has no
 * process and that no call can be made on. It ends with the file, as what is exported does in the driver
 * (osapi.c, rm_cleanup_file_private()). */
#include "../../native_sched/nvidia/rm/export_abi.h"
#include "rm.h"
#include <stdlib.h>
#include <string.h>

struct exports {
    struct rm_client *client;
    struct rm_object *device; /* of all that is exported here; NULL: of none */
    uint32_t places;
    uint8_t metadata[64];
    struct rm_object *at[]; /* NULL: none */
};

static struct sim_file *named_file(const struct rm_request *request)
{
    struct sim_file *file = file_find(request->rm, request->aux_file);

    return file && file->node == SIM_NODE_CTL ? file : NULL;
}

/* The client itself goes with its file. */
void exports_free(struct sim_file *file)
{
    free(file->exports);
    file->exports = NULL;
}

static uint32_t set_up(const struct rm_request *request, struct sim_file *file, uint32_t device,
                       uint32_t places, const uint8_t *metadata)
{
    const struct rm_object *of = device ? object_find(request->rm, request->object->handle, device) : NULL;
    struct exports *e;

    if (!places)
        return NV_ERR_INVALID_PARAMETER;
    if (file->exports)
        return NV_ERR_STATE_IN_USE;
    if (device && !of)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (of && of->class_id != NV01_DEVICE_0)
        return NV_ERR_INVALID_PARAMETER;
    e = calloc(1, sizeof *e + places * sizeof e->at[0]);
    if (!e || !(e->client = client_create(request->rm, file, 0, 0))) {
        free(e);
        return NV_ERR_NO_MEMORY;
    }
    e->client->internal = true;
    e->places = places;
    if (metadata)
        memcpy(e->metadata, metadata, sizeof e->metadata);
    file->exports = e;
    if (!of)
        return NV_OK;
    e->device = object_create(request->rm, &e->client->root, object_new_handle(request->rm, e->client),
                              NV01_DEVICE_0);
    if (e->device)
        e->device->card = of->card;
    return e->device ? NV_OK : NV_ERR_NO_MEMORY;
}

static void undo(const struct rm_request *request, struct sim_file *file)
{
    object_free(request->rm, &file->exports->client->root);
    exports_free(file);
}

static uint32_t export_to(const struct rm_request *request, struct exports *e, uint32_t handle,
                          struct rm_object **out)
{
    struct rm_object *source = object_find(request->rm, request->object->handle, handle);

    if (!source)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (class_is_unique(source->class_id))
        return NV_ERR_INVALID_ARGUMENT;
    if (!class_is_shared(source->class_id))
        return NV_ERR_NOT_SUPPORTED;
    if (!e->device || source->card != e->device->card)
        return NV_ERR_INVALID_PARAMETER;
    *out = object_alias(request->rm, e->device, object_new_handle(request->rm, e->client), source);
    return *out ? NV_OK : NV_ERR_NO_MEMORY;
}

/* All of them, or none; what was at their places gives way. */
static uint32_t put(const struct rm_request *request, struct exports *e, const uint32_t *handles,
                    uint32_t count, uint32_t index)
{
    struct rm_object *made[RM_EXPORT_OBJECTS] = {0};
    uint32_t status = NV_OK;

    if (count > RM_EXPORT_OBJECTS)
        return NV_ERR_INVALID_PARAMETER;
    if (count + index > e->places)
        return NV_ERR_OUT_OF_RANGE;
    for (uint32_t i = 0; i < count && !status; i++)
        if (handles[i])
            status = export_to(request, e, handles[i], &made[i]);
    for (uint32_t i = 0; i < count; i++) {
        struct rm_object **at = &e->at[index + i];

        if (status && made[i])
            object_free(request->rm, made[i]);
        if (status)
            continue;
        if (*at)
            object_free(request->rm, *at);
        *at = made[i];
    }
    return status;
}

uint32_t export_objects(const struct rm_request *request)
{
    const struct rm_export_objects *p = request->params;
    struct sim_file *file = named_file(request);
    bool fresh = file && !file->exports;
    uint32_t status;

    if (!file)
        return NV_ERR_INVALID_PARAMETER;
    if (fresh && (status = set_up(request, file, p->device, p->max, p->metadata)))
        return status;
    status = put(request, file->exports, p->object, p->count, p->index);
    if (status && fresh)
        undo(request, file);
    return status;
}

uint32_t export_object(const struct rm_request *request)
{
    const struct rm_export_object *p = request->params;
    struct sim_file *file = named_file(request);
    uint32_t status;

    if (!file || p->type != RM_EXPORT_TYPE_RM || p->flags & RM_EXPORT_EMPTY_FD)
        return NV_ERR_INVALID_PARAMETER;
    if ((status = set_up(request, file, p->device, 1, NULL)))
        return status;
    status = put(request, file->exports, &p->object, 1, 0);
    if (status)
        undo(request, file);
    return status;
}

uint32_t export_create(const struct rm_request *request)
{
    const struct rm_export_create *p = request->params;
    struct sim_file *file = named_file(request);

    return file ? set_up(request, file, p->device, p->max, p->metadata) : NV_ERR_INVALID_PARAMETER;
}

static uint32_t import_from(const struct rm_request *request, struct rm_object *source,
                            uint32_t parent_handle, uint32_t *handle)
{
    struct rm_client *client = request->object->client;
    struct rm_object *parent = object_find(request->rm, client->root.handle, parent_handle), *made;

    if (!parent)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (parent->class_id != NV01_DEVICE_0)
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (source->card && source->card->lost)
        return NV_ERR_GPU_IS_LOST;
    if (source->class_id == NV01_MEMORY_LOCAL_USER && parent->card != source->card)
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (*handle && object_find(request->rm, client->root.handle, *handle))
        return NV_ERR_INSERT_DUPLICATE_NAME;
    if (!*handle)
        *handle = object_new_handle(request->rm, client);
    made = object_alias(request->rm, parent, *handle, source);
    return made ? NV_OK : NV_ERR_NO_MEMORY;
}

uint32_t import_objects(const struct rm_request *request)
{
    struct rm_import_objects *p = request->params;
    const struct sim_file *file = named_file(request);
    uint32_t status = NV_OK, i;

    if (!file || !file->exports || p->count > RM_IMPORT_OBJECTS)
        return NV_ERR_INVALID_PARAMETER;
    if ((uint32_t)p->count + p->index > file->exports->places)
        return NV_ERR_OUT_OF_RANGE;
    for (i = 0; i < p->count && !status; i++) {
        struct rm_object *source = file->exports->at[p->index + i];

        p->type[i] = 0;
        if (!source)
            continue;
        status = import_from(request, source, p->parent, &p->object[i]);
        p->type[i] = source->class_id == NV01_MEMORY_LOCAL_USER ? RM_IMPORT_TYPE_VIDEO : RM_IMPORT_TYPE_HOST;
    }
    for (i -= status != NV_OK; status && i--;)
        if (p->type[i])
            object_free(request->rm, object_find(request->rm, request->object->handle, p->object[i]));
    return status;
}

/* One that several places were said for, up to 580.65. */
static bool has_places(const struct rm *rm, const struct exports *e)
{
    return e->places > 1 && (rm->major < 580 || (rm->major == 580 && rm->minor <= 65));
}

uint32_t import_object(const struct rm_request *request)
{
    struct rm_import_object *p = request->params;
    const struct sim_file *file = named_file(request);

    if (!file || p->type != RM_EXPORT_TYPE_RM || !file->exports || !file->exports->at[0] ||
        has_places(request->rm, file->exports))
        return NV_ERR_INVALID_PARAMETER;
    return import_from(request, file->exports->at[0], p->parent, &p->object);
}

/* From 545.23 on there is a word more before what follows. */
uint32_t export_info(const struct rm_request *request)
{
    const struct sim_file *file = named_file(request);
    struct rm_export_info *info = request->params;
    uint8_t *at = (uint8_t *)request->params + sizeof *info;
    const uint32_t no_instance = RM_NO_INSTANCE;
    const struct exports *e = file ? file->exports : NULL;
    uint16_t places;

    if (!e)
        return NV_ERR_INVALID_PARAMETER;
    info->device_instance = e->device ? e->device->card->index : RM_MAX_CARDS;
    if (request->params_bytes > sizeof *info + sizeof places + sizeof e->metadata + sizeof places) {
        memcpy(at, &no_instance, sizeof no_instance);
        at += sizeof no_instance;
    }
    places = (uint16_t)e->places;
    memcpy(at, &places, sizeof places);
    memcpy(at + sizeof places, e->metadata, sizeof e->metadata);
    return NV_OK;
}

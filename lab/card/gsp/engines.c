#include "engines.h"
#include "../../../native_sched/nvidia/rm/rm_abi.h"
#include "../state/faults.h"
#include <string.h>

enum { SPACE_OF_DEVICE = 3, CHANNEL_KIND = 0x6f };
enum { ADDRESS_SPACE_VIDEO = 2, CE_TYPES = 20 };
/* How NV_MEMORY_DESC_PARAMS begins. */
struct memory_desc {
    uint64_t base, bytes;
    uint32_t address_space, cache;
};

static uint32_t word(const uint8_t *params, uint32_t bytes, uint32_t at)
{
    uint32_t value = 0;

    if (at <= bytes && bytes - at >= sizeof value)
        memcpy(&value, params + at, sizeof value);
    return value;
}

static bool is_channel(uint32_t class_id)
{
    return (class_id & 0xff) == CHANNEL_KIND && class_id >= VOLTA_CHANNEL_GPFIFO_A &&
           class_id <= BLACKWELL_CHANNEL_GPFIFO_B;
}

static uint32_t engine_of(const struct objects *objects, uint32_t type)
{
    uint32_t first = objects->card->layout->value[AT_type_ce];

    return type >= first && type < first + CE_TYPES ? RM_ENGINE_COPY0 : RM_ENGINE_GRAPHICS;
}

static struct gpu_group *group_create(struct objects *objects, struct name name, uint32_t type)
{
    const struct gpu_owner owner = {.client = ENGINE_CLIENT, .handle = name.handle};

    return gpu_group_create(objects->card->gpu, engine_of(objects, type), &owner);
}

/* Which address space: it names one itself, or its context share does, or its group. */
static struct name vaspace_name(struct objects *objects, const struct object *object, uint32_t share)
{
    struct name name = {object->name.client, share};
    const struct object *from = share ? object_find(objects, name) : NULL;

    if (from && from->vaspace_of.client)
        return from->vaspace_of;
    from = object_find(objects, object->parent);
    return from && from->vaspace_of.client ? from->vaspace_of : object->parent;
}

static void channel_made(struct objects *objects, struct object *object, const uint8_t *params,
                         uint32_t bytes)
{
    const uint32_t *at = objects->card->layout->value;
    struct memory_desc userd = {0}, instance = {0};
    struct gpu_channel_layout layout = {
        .entries = word(params, bytes, at[AT_channel_entries]),
        .shows_get = object->class_id != BLACKWELL_CHANNEL_GPFIFO_A &&
                     object->class_id != BLACKWELL_CHANNEL_GPFIFO_B,
    };
    uint32_t named = word(params, bytes, at[AT_channel_space]);
    struct object *group;
    struct vaspace *vaspace;
    struct view view;

    if (at[AT_channel_userd] > bytes || bytes - at[AT_channel_userd] < sizeof userd)
        return;
    memcpy(&userd, params + at[AT_channel_userd], sizeof userd);
    memcpy(&instance, params + at[AT_channel_instance], sizeof instance); /* it lies before the other */
    layout.instance = faults_instance(instance.base, instance.address_space == ADDRESS_SPACE_VIDEO);
    memcpy(&layout.ring_at, params + at[AT_channel_ring], sizeof layout.ring_at);
    object->vaspace_of = named ? (struct name){object->name.client, named}
                               : vaspace_name(objects, object, word(params, bytes, at[AT_channel_share]));
    vaspace = object_space(objects, object->vaspace_of);
    group = object_find(objects, object->parent);
    if (!group || !group->group) {
        object->group = group_create(objects, object->name, word(params, bytes, at[AT_channel_engine]));
        group = object;
    }
    if (!vaspace || !group->group ||
        !physical_view(objects->card->physical,
                       (struct where){userd.address_space == ADDRESS_SPACE_VIDEO ? VIDEO : HOST, userd.base},
                       RM_USERD_BYTES, &view))
        return;
    layout.userd_at = view.offset;
    /* Nobody else does (kfifoSetupUserD() on bare metal): what an earlier channel left would be its work. */
    memset(view_at(&view), 0, view.bytes);
    if (gpu_layout_fits(&layout, view.memory->bytes, true))
        object->channel = gpu_channel_create(group->group, view.memory, &layout, vaspace);
    object->in_group = group;
    view_put(&view);
    card_log(objects->card, "channel %08x:%08x space %08x:%08x ring %#llx x %u userd %#llx in %u: %s",
             object->name.client, object->name.handle, object->vaspace_of.client, object->vaspace_of.handle,
             (unsigned long long)layout.ring_at, layout.entries, (unsigned long long)userd.base,
             userd.address_space, object->channel ? "runs" : "cannot run");
}

void engines_made(struct objects *objects, struct object *object, const uint8_t *params, uint32_t bytes)
{
    const uint32_t *at = objects->card->layout->value;
    uint32_t named;

    if (object->class_id == KEPLER_CHANNEL_GROUP_A) {
        object->group = group_create(objects, object->name, word(params, bytes, at[AT_group_engine]));
        named = word(params, bytes, at[AT_group_space]);
    } else if (object->class_id == FERMI_CONTEXT_SHARE_A) {
        named = word(params, bytes, at[AT_share_space]);
    } else if (object->class_id == FERMI_VASPACE_A && word(params, bytes, 0) == SPACE_OF_DEVICE) {
        object->original = object->parent; /* a handle of what the device has anyway, and keeps */
        return;
    } else {
        if (is_channel(object->class_id))
            channel_made(objects, object, params, bytes);
        return;
    }
    if (named)
        object->vaspace_of = (struct name){object->name.client, named};
}

#include "objects.h"
#include <stdlib.h>

enum { DUPLICATES_MAX = 16, DEPTH_MAX = 32 };

static struct object **bucket(struct objects *objects, struct name name)
{
    uint64_t hash = ((uint64_t)name.client << 32 | name.handle) * 0x9e3779b97f4a7c15u;

    return &objects->bucket[hash >> 54];
}
_Static_assert(OBJECT_BUCKETS == 1 << (64 - 54), "bucket() yields as many bits as there are buckets");

static struct object *named(struct objects *objects, struct name name)
{
    struct object *object = *bucket(objects, name);

    while (object && (object->name.client != name.client || object->name.handle != name.handle))
        object = object->next;
    return object;
}

struct object *object_find(struct objects *objects, struct name name)
{
    struct object *object = named(objects, name);

    for (int i = 0; object && object->original.client && i < DUPLICATES_MAX; i++)
        object = named(objects, object->original);
    return object;
}

/* A group that another client's channels are in takes these with it. */
static void end_channels_in(struct objects *objects, const struct object *group)
{
    for (uint32_t i = 0; i < OBJECT_BUCKETS; i++)
        for (struct object *object = objects->bucket[i]; object; object = object->next)
            if (object->channel && object->in_group == group) {
                gpu_channel_free(object->channel);
                object->channel = NULL;
                object->in_group = NULL;
            }
}

/* Out of the table; what it holds of the engines ends. */
static void end(struct objects *objects, struct object *object)
{
    struct object **at = bucket(objects, object->name);

    while (*at != object)
        at = &(*at)->next;
    *at = object->next;
    if (object->channel)
        gpu_channel_free(object->channel);
    if (object->group) {
        end_channels_in(objects, object);
        gpu_group_free(object->group);
    }
    vaspace_put(object->vaspace);
    free(object);
}

static bool is_below(struct objects *objects, const struct object *object, struct name name)
{
    for (int i = 0; object && i < DEPTH_MAX; i++) {
        if (object->parent.client == name.client && object->parent.handle == name.handle)
            return true;
        object = named(objects, object->parent);
    }
    return false;
}

/* Of what is below that name, or of all: channels first, since they are in groups. */
static struct object *next_below(struct objects *objects, const struct name *name)
{
    struct object *found = NULL;

    for (uint32_t i = 0; i < OBJECT_BUCKETS; i++)
        for (struct object *object = objects->bucket[i]; object; object = object->next) {
            if (name && (object->name.client != name->client || !is_below(objects, object, *name)))
                continue;
            if (object->channel)
                return object;
            found = object;
        }
    return found;
}

void object_free(struct objects *objects, struct name name)
{
    struct object *object;

    while ((object = next_below(objects, &name)))
        end(objects, object);
    object = named(objects, name);
    if (object)
        end(objects, object);
}

void objects_clear(struct objects *objects)
{
    struct object *object;

    while ((object = next_below(objects, NULL)))
        end(objects, object);
}

struct object *object_make(struct objects *objects, struct name name, struct name parent, uint32_t class_id)
{
    struct object *object;

    if (named(objects, name))
        object_free(objects, name);
    object = calloc(1, sizeof *object);
    if (!object)
        return NULL;
    object->name = name;
    object->parent = parent;
    object->class_id = class_id;
    object->next = *bucket(objects, name);
    *bucket(objects, name) = object;
    return object;
}

struct vaspace *object_space(struct objects *objects, struct name name)
{
    struct object *object = object_find(objects, name);

    if (!object) /* one that the GSP was not told of: the device's own */
        object = object_make(objects, name, (struct name){name.client, name.client}, 0);
    if (object && !object->vaspace)
        object->vaspace = tables_create(objects->card->physical, objects->card->chip->format);
    return object ? object->vaspace : NULL;
}

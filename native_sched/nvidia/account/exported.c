#include "exported.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>

/* The handle of a root. A name below it has the root's slot and its own place instead (handle_at()). */
static uint32_t handle_of_file(uint64_t file)
{
    return (uint32_t)file;
}

static uint32_t handle_at(uint32_t root, uint32_t place)
{
    return root * EXPORTED_PLACES + place;
}
_Static_assert((uint64_t)OBJECTS_MAX *EXPORTED_PLACES + EXPORTED_PLACES <= UINT32_MAX,
               "a place fits a handle");

uint32_t exported_root(const struct objects *o, uint64_t file)
{
    uint32_t i = 0;

    do
        i = objects_next_named(o, i, 0, handle_of_file(file));
    while (i && (o->slot[i].parent || o->slot[i].file != file));
    return i;
}

int64_t exported_add_root(struct objects *o, uint64_t file, uint32_t card, uint32_t places)
{
    int64_t slot = o->anonymous >= EXPORTED_MAX
                       ? -ENOSPC
                       : objects_add(o, 0, 0, handle_of_file(file), NV01_ROOT_CLIENT);

    if (slot < 0)
        return slot;
    o->slot[slot].file = file;
    o->slot[slot].card = card;
    o->slot[slot].places = places;
    objects_commit(o, (uint32_t)slot);
    return slot;
}

uint32_t exported_at(const struct objects *o, uint32_t root, uint32_t place)
{
    uint32_t i = 0;

    do
        i = root ? objects_next_named(o, i, 0, handle_at(root, place)) : 0;
    while (i && o->slot[i].parent != root);
    return i;
}

int64_t exported_add(struct objects *o, uint32_t root, uint32_t place, uint32_t source)
{
    int64_t slot = o->anonymous >= EXPORTED_MAX
                       ? -ENOSPC
                       : objects_add(o, root, 0, handle_at(root, place), o->slot[source].class_id);

    if (slot < 0)
        return slot;
    o->slot[slot].card = o->slot[source].card;
    objects_alias(o, source, (uint32_t)slot);
    objects_commit(o, (uint32_t)slot);
    return slot;
}

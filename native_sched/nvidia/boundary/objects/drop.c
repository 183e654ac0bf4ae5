#include "drop.h"
#include "native_sched/nvidia/account/external.h"
#include "native_sched/nvidia/channels/groups.h"
#include "native_sched/nvidia/rm/channel.h"

static void end_charge(void *context, const struct rm_object *obj)
{
    enum rm_kind kind = rm_kind_of(obj->class_id);
    struct tenant *t = context;

    if (obj->card != OBJECT_NO_CARD && obj->bytes && !external_holds(t->external, obj))
        ledger_release(&t->ledger[obj->card], obj->bytes);
    if (kind == RM_KIND_GROUP || kind == RM_KIND_CHANNEL)
        groups_forget(t->groups, obj->client, obj->handle);
}

/* RM ends peers with either of their subdevices (refAddDependant() in p2papiConstruct_IMPL()). */
static void drop_peers(struct tenant *t, uint32_t root)
{
    struct objects *o = &t->objects;
    uint32_t i = objects_next(o, root, root), next;

    for (; i; i = next) {
        bool ends = rm_kind_of(o->slot[i].class_id) == RM_KIND_P2P &&
                    !objects_find(o, o->slot[i].client, o->slot[i].peer);

        next = ends ? objects_after(o, root, i) : objects_next(o, root, i);
        if (ends)
            objects_drop(o, i, end_charge, t);
    }
}

void object_drop(struct tenant *t, uint32_t slot)
{
    enum rm_kind kind = rm_kind_of(t->objects.slot[slot].class_id);
    uint32_t root = objects_root(&t->objects, slot);

    assert_held(&t->lock);
    objects_drop(&t->objects, slot, end_charge, t);
    if (kind == RM_KIND_DEVICE || kind == RM_KIND_SUBDEVICE)
        drop_peers(t, root);
}

void objects_drop_of_file(struct tenant *t, uint64_t file)
{
    assert_held(&t->lock);
    objects_drop_file(&t->objects, file, end_charge, t);
}

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

void object_drop(struct tenant *t, uint32_t slot)
{
    assert_held(&t->lock);
    objects_drop(&t->objects, slot, end_charge, t);
}

void objects_drop_of_file(struct tenant *t, uint64_t file)
{
    assert_held(&t->lock);
    objects_drop_file(&t->objects, file, end_charge, t);
}

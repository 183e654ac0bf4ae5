/* REGISTER_CHANNEL of nvidia-uvm, made by the arbiter: it retains a name of the group (retained.h). */
#include "native_sched/nvidia/account/exported.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/boundary/objects/drop.h"
#include "native_sched/nvidia/boundary/objects/retained.h"
#include "native_sched/nvidia/boundary/objects/shared.h"
#include "uvm.h"

/* The channel that is named, as a slot, and the file of its client. NV_OK or another RM status. */
static uint32_t find(const struct call *c, const struct uvm_register_channel *request,
                     struct open_file *client, uint32_t *slot)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t status = shared_client(c, request->client, client);

    assert_held(&c->tenant->lock);
    if (status)
        return status;
    *slot = objects_find(o, request->client, request->channel);
    if (!*slot || rm_kind_of(o->slot[*slot].class_id) != RM_KIND_CHANNEL ||
        rm_kind_of(o->slot[o->slot[*slot].parent].class_id) != RM_KIND_GROUP)
        return NV_ERR_INVALID_OBJECT_HANDLE;
    return NV_OK;
}

/* The registration's slot, which it may have had before (*fresh: not). NV_OK or another RM status. */
static uint32_t note(const struct call *c, const struct uvm_register_channel *request, uint32_t channel,
                     uint32_t *slot, bool *fresh)
{
    struct objects *o = &c->tenant->objects;
    uint32_t group = o->slot[channel].parent, root = exported_root(o, c->file.id);
    int64_t made;

    assert_held(&c->tenant->lock);
    /* A closed file keeps no channel: no later event would end the charge. */
    if (!files_open(c->m->files, &c->file))
        return NV_ERR_INVALID_DEVICE;
    for (uint32_t i = retained_next(o, 0, request->client, request->channel); i;
         i = retained_next(o, i, request->client, request->channel))
        if (root && o->slot[i].parent == root) {
            *slot = i;
            return NV_OK;
        }
    if (!root && (made = exported_add_root(o, c->file.id, OBJECT_NO_CARD, 0)) < 0)
        return NV_ERR_NO_MEMORY;
    root = exported_root(o, c->file.id);
    if (o->anonymous >= EXPORTED_MAX ||
        (made = objects_add(o, root, 0, request->channel, OBJECT_USER_CHANNEL)) < 0)
        return NV_ERR_NO_MEMORY;
    o->slot[made].card = o->slot[group].card;
    objects_alias(o, group, (uint32_t)made);
    o->slot[made].channel_client = request->client;
    objects_commit(o, (uint32_t)made);
    *slot = (uint32_t)made;
    *fresh = true;
    return NV_OK;
}

/* The driver is about to duplicate the group, and what is below it. */
static struct answer make(struct call *c, struct uvm_register_channel *request,
                          const struct open_file *client, uint32_t group)
{
    int e;

    inflight_intend(c, INTENT_UVM, client, c->cmd, request->client, group);
    /* The previous mgpud may have made it, and has not told the caller. */
    if (c->again)
        retained_unregister(c->m, &c->file, request->client, request->channel);
    if ((e = shared_lend(c, client, request->client, group)) < 0)
        return answer_of(e);
    e = call_uvm_without_fd(c, &request->ctl_fd);
    shared_take_back(c->m, client, request->client, group);
    return driver_answer(e, request->status);
}

struct answer uvm_register_channel(struct call *c)
{
    struct uvm_register_channel *request = (void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    struct tenant *t = c->tenant;
    uint32_t channel = 0, slot = 0, status;
    struct open_file client;
    struct answer made;
    bool fresh = false;
    WITH_CALLS_OF(t);

    {
        WITH_TENANT(t);
        if (!(status = find(c, request, &client, &channel)))
            status = note(c, request, channel, &slot, &fresh);
    }
    if (status)
        return answered(status);
    made = make(c, request, &client, o->slot[o->slot[channel].parent].handle);
    if (fresh && (made.kind != ANSWER || made.rm_status != NV_OK)) {
        WITH_TENANT(t);
        object_drop(t, slot);
    }
    return made;
}

#include "retained.h"
#include "drop.h"
#include <errno.h>
#include <string.h>

/* The end of UNREGISTER_CHANNEL's parameters. Before 590.44 the name of a GPU goes before, which is not
 * looked at. */
struct unregister {
    uint32_t client, channel, status;
};

uint32_t retained_next(const struct objects *o, uint32_t after, uint32_t client, uint32_t channel)
{
    uint32_t i = after;

    do
        i = objects_next_named(o, i, 0, channel);
    while (i && (o->slot[i].class_id != OBJECT_USER_CHANNEL || o->slot[i].channel_client != client));
    return i;
}

bool retained_unregister(const struct mediator *m, const struct open_file *file, uint32_t client,
                         uint32_t channel)
{
    uint32_t bytes = (uint32_t)rm_uvm_params(&m->rm, UVM_UNREGISTER_CHANNEL);
    struct unregister u = {.client = client, .channel = channel};
    _Alignas(8) uint8_t outer[32] = {0};
    int e;

    memcpy(outer + bytes - sizeof(u), &u, sizeof(u));
    e = mediator_call(m, file, NULL, UVM_UNREGISTER_CHANNEL, outer, bytes);
    memcpy(&u, outer + bytes - sizeof(u), sizeof(u));
    return e == -EBADF || (e == 0 && (u.status == NV_OK || u.status == NV_ERR_INVALID_CHANNEL ||
                                      u.status == NV_ERR_ILLEGAL_ACTION));
}

static void end_channel(const struct mediator *m, struct tenant *t, uint32_t client, uint32_t channel,
                        bool recovering)
{
    struct objects *o = &t->objects;
    struct open_file file;
    uint32_t next;

    for (uint32_t i = retained_next(o, 0, client, channel); i; i = next) {
        next = retained_next(o, i, client, channel);
        if (files_by_id(m->files, o->slot[o->slot[i].parent].file, &file) &&
            !retained_unregister(m, &file, client, channel))
            continue;
        WITH_TENANT(t);
        if (recovering)
            objects_drop(o, i, NULL, NULL);
        else
            object_drop(t, i);
    }
}

void retained_end(const struct mediator *m, struct tenant *t, uint32_t slot, bool recovering)
{
    const struct objects *o = &t->objects;

    assert_held(&t->calls);
    for (uint32_t i = slot; i; i = objects_next(o, slot, i))
        if (rm_kind_of(o->slot[i].class_id) == RM_KIND_CHANNEL)
            end_channel(m, t, o->slot[i].client, o->slot[i].handle, recovering);
}

/* Export of memory through open files: NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, EXPORT_OBJECTS_TO_FD and CREATE_EXPORT_OBJECT_FD, all of
 * them made as the second, with one object at a time. Twice is the same then, and where RM fails in the middle of several it
 * frees what it finds in memory that it has not written yet: other programs' exports (cliresCtrlCmdOsUnixExportObjectsToFd_IMPL
 * in os.c of NVIDIA's open-gpu-kernel-modules).
 *
 * What is exported is in the books before RM is asked, and is taken back by a later worker in both, or stays in the books until
 * the file ends: never in RM alone. */
#include "export.h"
#include "caught.h"
#include "create.h"
#include "ending.h"
#include "exported.h"
#include "rm_export_abi.h"
#include <errno.h>
#include <string.h>

/* As a program has said it, by whichever control. */
struct wanted {
    int32_t fd;
    uint32_t device, max, count, index;
    bool first; /* nothing has been exported through the file before */
    const uint8_t *metadata;
    const uint32_t *object;
};

bool control_changes(uint32_t cmd)
{
    return cmd == NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD ||
           cmd == NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD ||
           cmd == NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD ||
           cmd == NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD ||
           cmd == NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD;
}

/* What an import answers may be in the caller's memory already. */
uint32_t control_said(const struct call *c)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct rm_import_objects *in = (const void *)c->params;

    if (ctl->cmd != NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD)
        return store_check(c->params, c->params_bytes);
    return store_check(in, offsetof(struct rm_import_objects, type)) ^
           store_check(&in->count, sizeof(in->count) + sizeof(in->index));
}

int export_file(struct call *c, int32_t fd, struct open_file *out)
{
    int e = ending_identify(c, fd, out);

    if (e < 0 && !caller_waits(c->caller))
        return -EINTR;
    switch (e) {
    case 0:
        return out->kind == NODE_CTL ? NV_OK : NV_ERR_INVALID_PARAMETER;
    case -EPERM:
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    case -EMFILE:
    case -ENFILE:
    case -ENOSPC:
        return NV_ERR_NO_MEMORY;
    default:
        return NV_ERR_INVALID_PARAMETER;
    }
}

uint32_t export_client(const struct call *c, const struct rm_control *ctl)
{
    if (!call_find(c, ctl->client, ctl->client))
        return NV_ERR_INVALID_CLIENT;
    return ctl->object == ctl->client ? NV_OK : NV_ERR_NOT_SUPPORTED;
}

int export_ask(struct call *c, uint32_t cmd, void *params, uint32_t bytes, const struct open_file *file)
{
    const struct rm_control *theirs = (const void *)c->outer;
    struct rm_control ctl = {
        .client = theirs->client, .object = theirs->client, .cmd = cmd, .params_size = bytes};
    struct driver_call d = call_for_driver(c, &c->file);
    int e;

    d.cmd = RM_CMD(NV_ESC_RM_CONTROL, sizeof(ctl));
    d.outer = (uint8_t *)&ctl;
    d.outer_bytes = sizeof(ctl);
    d.params = params;
    d.params_bytes = bytes;
    d.aux_file = file;
    c->asked = true;
    e = caller_waits(c->caller) ? c->m->ops->execute(c->m->driver, &d) : -EINTR;
    return e < 0 ? e : (int)ctl.status;
}

/* NV_OK, or what RM says of such parameters. */
static uint32_t read_wanted(const struct call *c, struct wanted *w)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct rm_export_object *one = (const void *)c->params;
    const struct rm_export_create *create = (const void *)c->params;
    const struct rm_export_objects *several = (const void *)c->params;
    static const uint32_t nothing;

    switch (ctl->cmd) {
    case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
        if (one->flags & RM_EXPORT_EMPTY_FD || one->type != RM_EXPORT_TYPE_RM || !one->object)
            return NV_ERR_INVALID_PARAMETER;
        *w = (struct wanted){.fd = one->fd, .device = one->device, .max = 1, .count = 1, .first = true};
        w->object = &one->object;
        return NV_OK;
    case NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD:
        *w = (struct wanted){
            .fd = create->fd, .device = create->device, .max = create->max, .count = 1, .first = true};
        w->metadata = create->metadata;
        w->object = &nothing;
        return w->max ? NV_OK : NV_ERR_INVALID_PARAMETER;
    default:
        *w = (struct wanted){.fd = several->fd, .device = several->device, .max = several->max};
        w->count = several->count;
        w->index = several->index;
        w->metadata = several->metadata;
        w->object = several->object;
        return w->count <= RM_EXPORT_OBJECTS ? NV_OK : NV_ERR_INVALID_PARAMETER;
    }
}

/* The device above an object, where a program that exports one object has named none. */
static uint32_t device_above(const struct objects *o, uint32_t slot)
{
    while (slot && o->slot[slot].class_id != NV01_DEVICE_0)
        slot = o->slot[slot].parent;
    return slot ? o->slot[slot].handle : 0;
}

/* What the file's objects are on, and at how many places: its own, or what the call is about to make it. */
static uint32_t find_file(const struct call *c, struct wanted *w, uint32_t client, uint32_t root,
                          uint32_t *card)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t device;

    if (root && w->first)
        return NV_ERR_STATE_IN_USE;
    if (root) {
        w->max = o->slot[root].places;
        *card = o->slot[root].card;
        return NV_OK;
    }
    if (!w->max)
        return NV_ERR_INVALID_PARAMETER;
    if (w->max > EXPORTED_PLACES)
        return NV_ERR_NO_MEMORY;
    if (w->first && !w->device)
        w->device = device_above(o, call_find(c, client, *w->object));
    device = w->device ? call_find(c, client, w->device) : 0;
    if (w->device && !device)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (device && o->slot[device].class_id != NV01_DEVICE_0)
        return NV_ERR_INVALID_PARAMETER;
    *card = device ? o->slot[device].card : OBJECT_NO_CARD;
    return NV_OK;
}

/* All of it, before RM is asked for any: RM exports all or none. NV_OK, or its no. The tenant is held. */
static uint32_t examine(const struct call *c, struct wanted *w, const struct open_file *file)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    uint32_t card, status = export_client(c, ctl), more = 0;

    if (status || (status = find_file(c, w, ctl->client, exported_root(o, file->id), &card)))
        return status;
    if (w->count + w->index > w->max)
        return NV_ERR_OUT_OF_RANGE;
    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t slot = call_find(c, ctl->client, w->object[i]);

        if (!w->object[i])
            continue;
        if (!slot)
            return NV_ERR_OBJECT_NOT_FOUND;
        if (!class_has_names(o->slot[slot].class_id))
            return NV_ERR_NOT_SUPPORTED;
        if (o->slot[slot].card != card)
            return NV_ERR_INVALID_PARAMETER;
        more++;
    }
    return o->nameless + more < EXPORTED_MAX ? NV_OK : NV_ERR_NO_MEMORY;
}

/* One place of the file, as it is about to be: `name` stands for the object, 0: for none. */
struct place {
    uint32_t root, at, name;
    bool fresh; /* the root is this call's */
};

/* NV_OK, or that there is no room. The tenant is held. */
static uint32_t note(struct call *c, const struct wanted *w, uint32_t i, const struct open_file *file,
                     struct place *p)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct objects *o = &c->tenant->objects;
    uint32_t source = w->object[i] ? call_find(c, ctl->client, w->object[i]) : 0;
    uint32_t device = w->device ? call_find(c, ctl->client, w->device) : 0;
    int64_t slot;

    *p = (struct place){.root = exported_root(o, file->id), .at = w->index + i};
    /* Nothing is kept by a file that is gone: nothing would end it. */
    if (!files_open(c->m->files, file))
        return NV_ERR_INVALID_PARAMETER;
    if (!p->root) {
        slot = exported_add_root(o, file->id, device ? o->slot[device].card : OBJECT_NO_CARD, w->max);
        if (slot < 0)
            return NV_ERR_NO_MEMORY;
        p->root = (uint32_t)slot;
        p->fresh = true;
    }
    if (!source)
        return NV_OK;
    if ((slot = exported_add(o, p->root, p->at, source)) >= 0) {
        p->name = (uint32_t)slot;
        return NV_OK;
    }
    if (p->fresh)
        drop_object(c->tenant, p->root);
    return NV_ERR_NO_MEMORY;
}

/* RM has done it: what was at the place is there no more. Or it has not. The tenant is held. */
static void settle_place(struct tenant *t, const struct place *p, bool done)
{
    const struct objects *o = &t->objects;
    uint32_t i, next;

    if (!done && p->fresh)
        drop_object(t, p->root);
    else if (!done && p->name)
        drop_object(t, p->name);
    for (i = done ? exported_at(o, p->root, p->at, 0) : 0; i; i = next) {
        next = exported_at(o, p->root, p->at, i);
        if (i != p->name)
            drop_object(t, i);
    }
}

/* NV_OK, another RM status, or a negative errno. */
static int export_one(struct call *c, const struct wanted *w, uint32_t i, const struct open_file *file)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct rm_export_objects ask = {
        .device = w->device, .max = (uint16_t)w->max, .count = 1, .index = (uint16_t)(w->index + i)};
    struct tenant *t = c->tenant;
    struct place place;
    uint32_t status;
    int e;

    ask.object[0] = w->object[i];
    if (w->metadata)
        memcpy(ask.metadata, w->metadata, sizeof(ask.metadata));
    {
        WITH_TENANT(t);
        caught_intend(c, INTENT_EXPORT, file, ctl->client, !exported_root(&t->objects, file->id),
                      w->index + i);
        if ((status = note(c, w, i, file, &place))) {
            if (c->asked)
                stats_refused(&t->stats, status);
            return (int)status;
        }
    }
    e = export_ask(c, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, &ask, sizeof(ask), file);
    WITH_TENANT(t);
    settle_place(t, &place, e == NV_OK);
    if (i + 1 < w->count)
        caught_begun(c);
    return e;
}

/* Any of the tenant's can say it: the client itself may have ended. */
static uint32_t client_to_ask(const struct mediator *m, const struct tenant *t, uint32_t wanted,
                              struct open_file *file)
{
    const struct objects *o = &t->objects;
    uint32_t i = objects_find(o, wanted, wanted);

    for (i = i ? i : o->slot[0].first_child; i; i = o->slot[i].next_sibling)
        if (o->slot[i].client && files_by_id(m->files, o->slot[i].file, file))
            return o->slot[i].client;
    return 0;
}

void export_undo(const struct mediator *m, struct tenant *t, const struct open_file *file, uint32_t client,
                 uint32_t place, bool first)
{
    struct rm_export_objects none = {.count = 1, .index = (uint16_t)place};
    struct rm_control ctl = {.cmd = NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD,
                             .params_size = sizeof(none)};
    struct open_file on;
    struct driver_call d = {
        .file = &on,
        .aux_file = file,
        .rm = &m->rm,
        .cmd = RM_CMD(NV_ESC_RM_CONTROL, sizeof(ctl)),
        .outer = (uint8_t *)&ctl,
        .outer_bytes = sizeof(ctl),
        .params = (uint8_t *)&none,
        .params_bytes = sizeof(none),
        .reply_fd = -1,
    };
    uint32_t root, i, next;

    WITH_TENANT(t);
    ctl.client = ctl.object = client_to_ask(m, t, client, &on);
    root = exported_root(&t->objects, file->id);
    /* A file that has never been set up is one that has nothing. */
    if (!root || !ctl.client || m->ops->execute(m->driver, &d) < 0 ||
        (ctl.status != NV_OK && ctl.status != NV_ERR_INVALID_PARAMETER))
        return;
    for (i = exported_at(&t->objects, root, place, 0); i; i = next) {
        next = exported_at(&t->objects, root, place, i);
        objects_drop(&t->objects, i, NULL, NULL);
    }
    if (first)
        objects_drop(&t->objects, root, NULL, NULL);
}

int control_export(struct call *c, uint32_t *status)
{
    struct open_file file;
    struct wanted w;
    int e;

    c->params_out = false;
    c->said = c->said_after = control_said(c);
    if ((*status = read_wanted(c, &w)))
        return 0;
    if ((e = export_file(c, w.fd, &file)) != NV_OK)
        return export_answer(e, status);
    WITH_CALLS_OF(c->tenant);
    {
        WITH_TENANT(c->tenant);
        if ((*status = examine(c, &w, &file)))
            return 0;
    }
    for (uint32_t i = 0; i < w.count && e == NV_OK; i++)
        e = export_one(c, &w, i, &file);
    c->params_bytes = 0;
    return export_answer(e, status);
}

int control_export_info(struct call *c, uint32_t *status)
{
    struct rm_export_info *info = (void *)c->params;
    struct open_file file;
    int e = export_file(c, info->fd, &file);

    if (e != NV_OK)
        return export_answer(e, status);
    return call_driver_with(c, &file, NULL);
}

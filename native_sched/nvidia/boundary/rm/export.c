/* Export of memory through open files: EXPORT_OBJECT_TO_FD, EXPORT_OBJECTS_TO_FD and CREATE_EXPORT_OBJECT_FD.
 *
 * All of them are made as EXPORT_OBJECTS_TO_FD with one object at a time. RM that fails in the middle of
 * several frees what it finds in memory that it has not written yet, which are other programs' exports
 * (cliresCtrlCmdOsUnixExportObjectsToFd_IMPL in os.c of NVIDIA's open-gpu-kernel-modules).
 *
 * What is exported is in the account before RM is asked. If mgpud ends in between, the name stays there until
 * the file ends, whether RM has it or not. The next mgpud makes the call again, and twice is the same: a
 * place takes the memory that it has, and no other. By what is exported the next mgpud knows the file again
 * (adopt.c), so RM makes it one of nothing before there is anything in the account. */
#include "export.h"
#include "create.h"
#include "handlers.h"
#include "native_sched/nvidia/account/exported.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/rm/export_abi.h"
#include <errno.h>
#include <string.h>

/* The program's request, by whichever control it came. */
struct wanted {
    int32_t fd;
    uint32_t device, max, count, index;
    bool first; /* nothing has been exported through the file before */
    const uint8_t *metadata;
    const uint32_t *object;
};

int export_file(struct call *c, int32_t fd, struct open_file *out)
{
    int e = close_wait_identify(c, fd, out);

    if (e < 0 && !caller_waits(c->caller))
        return -EINTR;
    switch (e) {
    case 0:
        return out->kind == NODE_CTL ? 0 : rm_refusal(NV_ERR_INVALID_PARAMETER);
    case -EPERM:
        return rm_refusal(NV_ERR_INSUFFICIENT_PERMISSIONS);
    case -EMFILE:
    case -ENFILE:
    case -ENOSPC:
        return rm_refusal(NV_ERR_NO_MEMORY);
    default:
        return rm_refusal(NV_ERR_INVALID_PARAMETER);
    }
}

uint32_t export_client(const struct call *c, const struct rm_control *ctl)
{
    if (!call_find(c, ctl->client, ctl->client))
        return NV_ERR_INVALID_CLIENT;
    return ctl->object == ctl->client ? NV_OK : NV_ERR_NOT_SUPPORTED;
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
    while (slot && rm_kind_of(o->slot[slot].class_id) != RM_KIND_DEVICE)
        slot = o->slot[slot].parent;
    return slot ? o->slot[slot].handle : 0;
}

/* What the file's objects are on, and at how many places: its own, or what the call is about to make it. */
static uint32_t find_file(const struct call *c, struct wanted *w, uint32_t client, uint32_t root,
                          uint32_t *card)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t device;

    if (root && w->first && !c->again)
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
    if (device && rm_kind_of(o->slot[device].class_id) != RM_KIND_DEVICE)
        return NV_ERR_INVALID_PARAMETER;
    *card = device ? o->slot[device].card : OBJECT_NO_CARD;
    return NV_OK;
}

/* All of it, before RM is asked for any: RM exports all or none. NV_OK, or its no. */
static uint32_t examine(const struct call *c, struct wanted *w, const struct open_file *file)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    uint32_t card, status = export_client(c, ctl), root = exported_root(o, file->id), more = 0;

    assert_held(&c->tenant->lock);
    if (status || (status = find_file(c, w, ctl->client, root, &card)))
        return status;
    if (w->count + w->index > w->max)
        return NV_ERR_OUT_OF_RANGE;
    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t slot = call_find(c, ctl->client, w->object[i]);
        uint32_t taken = exported_at(o, root, w->index + i);

        if (!w->object[i])
            continue;
        if (!slot)
            return NV_ERR_OBJECT_NOT_FOUND;
        if (!rm_class_has_names(o->slot[slot].class_id))
            return NV_ERR_NOT_SUPPORTED;
        if (o->slot[slot].card != card)
            return NV_ERR_INVALID_PARAMETER;
        if (taken && o->slot[taken].memory != o->slot[slot].memory)
            return NV_ERR_STATE_IN_USE;
        more += !taken;
    }
    return o->anonymous + more < EXPORTED_MAX ? NV_OK : NV_ERR_NO_MEMORY;
}

/* *added: the name, or the root that it is below, for the case that RM refuses; 0: both are there already.
 * NV_OK, or RM's no. */
static uint32_t note(struct call *c, const struct wanted *w, uint32_t i, const struct open_file *file,
                     uint32_t *added)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct objects *o = &c->tenant->objects;
    uint32_t source = w->object[i] ? call_find(c, ctl->client, w->object[i]) : 0;
    uint32_t device = w->device ? call_find(c, ctl->client, w->device) : 0;
    uint32_t root = exported_root(o, file->id);
    int64_t slot = root;

    assert_held(&c->tenant->lock);
    *added = 0;
    /* A closed file keeps no memory: no later event would end the charge. */
    if (!files_open(c->m->files, file))
        return NV_ERR_INVALID_PARAMETER;
    if (!root)
        slot = exported_add_root(o, file->id, device ? o->slot[device].card : OBJECT_NO_CARD, w->max);
    if (slot < 0)
        return NV_ERR_NO_MEMORY;
    if (!root)
        *added = root = (uint32_t)slot;
    if (!source || exported_at(o, root, w->index + i))
        return NV_OK;
    slot = exported_add(o, root, w->index + i, source);
    if (slot < 0 && *added)
        object_drop(c->tenant, root);
    if (slot >= 0 && !*added)
        *added = (uint32_t)slot;
    return slot < 0 ? NV_ERR_NO_MEMORY : NV_OK;
}

static struct rm_export_objects export_of(const struct wanted *w, uint32_t i, uint32_t object)
{
    struct rm_export_objects ask = {
        .device = w->device, .max = (uint16_t)w->max, .count = 1, .index = (uint16_t)(w->index + i)};

    ask.object[0] = object;
    if (w->metadata)
        memcpy(ask.metadata, w->metadata, sizeof(ask.metadata));
    return ask;
}

/* 0, a negative errno or rm_refusal(). */
static int begin_file(struct call *c, const struct wanted *w, const struct open_file *file)
{
    struct rm_export_objects nothing = export_of(w, 0, 0);
    uint32_t root;
    {
        WITH_TENANT(c->tenant);
        root = exported_root(&c->tenant->objects, file->id);
    }
    if (root || !w->count)
        return 0;
    return control_ask(c, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, &nothing, sizeof(nothing), file);
}

/* 0, a negative errno or rm_refusal(). */
static int export_one(struct call *c, const struct wanted *w, uint32_t i, const struct open_file *file)
{
    struct rm_export_objects ask = export_of(w, i, w->object[i]);
    struct tenant *t = c->tenant;
    uint32_t status, gone;
    int e;

    {
        WITH_TENANT(t);
        if ((status = note(c, w, i, file, &gone))) {
            if (c->asked)
                stats_refused(&t->stats, status);
            return rm_refusal(status);
        }
    }
    e = control_ask(c, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, &ask, sizeof(ask), file);
    WITH_TENANT(t);
    if (e == 0)
        gone = w->object[i] ? 0 : exported_at(&t->objects, exported_root(&t->objects, file->id), ask.index);
    if (gone)
        object_drop(t, gone);
    return e;
}

int control_export(struct call *c, uint32_t *status)
{
    struct open_file file;
    struct wanted w;
    int e;

    c->params_out = false;
    c->params_check = c->params_check_after = call_params_check(c);
    if ((*status = read_wanted(c, &w)))
        return 0;
    if ((e = export_file(c, w.fd, &file)) < 0)
        return control_answer(e, status);
    WITH_CALLS_OF(c->tenant);
    {
        WITH_TENANT(c->tenant);
        if ((*status = examine(c, &w, &file)))
            return 0;
    }
    inflight_commit(c);
    e = begin_file(c, &w, &file);
    for (uint32_t i = 0; i < w.count && e == 0; i++)
        e = export_one(c, &w, i, &file);
    c->params_bytes = 0;
    return control_answer(e, status);
}

int control_export_info(struct call *c, uint32_t *status)
{
    struct rm_export_info *info = (void *)c->params;
    struct open_file file;
    int e = export_file(c, info->fd, &file);

    if (e < 0)
        return control_answer(e, status);
    return call_driver_with(c, &file, NULL);
}

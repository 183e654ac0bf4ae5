/* Import of what was exported through an open file of the tenant's (export.c): a further name of the memory,
 * in the importing client, charged nothing. NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD and
 * IMPORT_OBJECTS_FROM_FD, both made as the second, with one object at a time and a name that we know. Where
 * RM fails in the middle of several it frees all that the call names before that, at places too where nothing
 * was exported: any object of the client's (cliresCtrlCmdOsUnixImportObjectsFromFd_IMPL in os.c of NVIDIA's
 * open-gpu-kernel-modules). */
#include "create.h"
#include "export.h"
#include "native_sched/nvidia/account/exported.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/rm/export_abi.h"
#include <errno.h>
#include <string.h>

/* The program's request, by either control; object and type are in its parameters. */
struct wanted {
    int32_t fd;
    uint32_t parent, count, index;
    uint32_t *object;
    uint8_t *type;
    uint8_t unused;
    bool made[RM_IMPORT_OBJECTS], chosen;
};

static uint32_t read_wanted(const struct rm_control *ctl, uint8_t *params, struct wanted *w)
{
    struct rm_import_object *one = (void *)params;
    struct rm_import_objects *several = (void *)params;

    if (ctl->cmd == NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD) {
        *w = (struct wanted){.fd = one->fd, .parent = one->parent, .count = 1, .object = &one->object};
        w->type = &w->unused;
        return one->type == RM_EXPORT_TYPE_RM ? NV_OK : NV_ERR_INVALID_PARAMETER;
    }
    *w = (struct wanted){.fd = several->fd, .parent = several->parent, .object = several->object};
    w->count = several->count;
    w->index = several->index;
    w->type = several->type;
    return w->count <= RM_IMPORT_OBJECTS ? NV_OK : NV_ERR_INVALID_PARAMETER;
}

/* NV_OK, or RM's no. */
static uint32_t examine(const struct call *c, const struct wanted *w, const struct open_file *file)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    uint32_t root = exported_root(o, file->id), status = export_client(c, ctl);

    assert_held(&c->tenant->lock);
    if (status)
        return status;
    if (!root)
        return NV_ERR_INVALID_PARAMETER;
    if (w->count + w->index > o->slot[root].places)
        return NV_ERR_OUT_OF_RANGE;
    if (ctl->cmd == NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD && !exported_at(o, root, 0))
        return NV_ERR_INVALID_PARAMETER;
    return call_find(c, ctl->client, w->parent) ? NV_OK : NV_ERR_INVALID_OBJECT_PARENT;
}

/* True if `name` is of the same memory as `source`, below that parent. */
static bool is_name_of(const struct objects *o, uint32_t name, uint32_t parent, uint32_t source)
{
    return name && o->slot[name].memory == o->slot[source].memory && o->slot[name].parent == parent;
}

/* The previous mgpud may have imported some: a name that exists is what it had made. */
static uint32_t find_name(struct call *c, const struct wanted *w, uint32_t i, uint32_t parent,
                          uint32_t source, bool *there)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    uint32_t handle = w->object[i] ? w->object[i] : same_handle_again(c, i);
    uint32_t taken = objects_find(o, ctl->client, handle);

    assert_held(&c->tenant->lock);
    if (!may_have_name(o, source, parent))
        return NV_ERR_INVALID_OBJECT_PARENT;
    *there = c->again && is_name_of(o, taken, parent, source);
    if (*there || !taken)
        w->object[i] = handle;
    return *there ? NV_OK : choose_handle(c->tenant, ctl->client, &w->object[i]);
}

/* 0, a negative errno or rm_refusal(). */
static int import_one(struct call *c, struct wanted *w, uint32_t i, const struct open_file *file)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct rm_import_objects ask = {.parent = w->parent, .count = 1, .index = (uint16_t)(w->index + i)};
    struct tenant *t = c->tenant;
    uint32_t parent, source, status;
    bool there;
    int e;

    {
        const struct objects *o = &t->objects;
        WITH_TENANT(t);
        parent = call_find(c, ctl->client, w->parent);
        source = exported_at(o, exported_root(o, file->id), w->index + i);
        if (!source) {
            w->type[i] = 0;
            return 0;
        }
        w->type[i] = rm_kind_of(o->slot[source].class_id) == RM_KIND_VIDEO_MEMORY ? RM_IMPORT_TYPE_VIDEO
                                                                                  : RM_IMPORT_TYPE_HOST;
        w->chosen |= !w->object[i];
        if ((status = find_name(c, w, i, parent, source, &there)))
            return rm_refusal(status);
        if (there)
            return 0;
    }
    ask.object[0] = w->object[i];
    inflight_intend(c, INTENT_MAKE, &c->file, ctl->client, w->parent, w->object[i]);
    if ((e = control_ask(c, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, &ask, sizeof(ask), file)) < 0)
        return e;
    {
        WITH_TENANT(t);
        e = object_add_alias(t, parent, source, ctl->client, w->object[i]);
    }
    w->made[i] = e == 0;
    if (e == 0) {
        if (i + 1 < w->count)
            inflight_commit(c);
        return 0;
    }
    object_roll_back(c, ctl->client, w->parent, w->object[i]);
    stats_refused(&t->stats, NV_ERR_NO_MEMORY);
    return rm_refusal(NV_ERR_NO_MEMORY);
}

static void roll_back_imports(struct call *c, const struct wanted *w)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct tenant *t = c->tenant;

    for (uint32_t i = 0; i < w->count; i++) {
        if (!w->made[i] || !object_roll_back(c, ctl->client, w->parent, w->object[i]))
            continue;
        WITH_TENANT(t);
        object_drop(t, objects_find(&t->objects, ctl->client, w->object[i]));
    }
}

/* Where there are several, types alone go the usual way, by which they are kept for a call that a signal
 * sends again. */
static int answer(struct call *c, const struct wanted *w)
{
    const struct rm_control *ctl = (const void *)c->outer;
    int e = 0;

    c->params_out = true;
    c->params_check_after = call_params_check(c);
    if (ctl->cmd == NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD)
        return 0;
    if (w->chosen && caller_waits(c->caller))
        e = caller_write_both(c->caller, c->params_at + offsetof(struct rm_import_objects, object), w->object,
                              w->count * sizeof(*w->object), 0, NULL, 0);
    memmove(c->params, w->type, w->count);
    c->params_at += offsetof(struct rm_import_objects, type);
    c->params_bytes = w->count;
    return e;
}

int control_import(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct open_file file;
    struct wanted w;
    int e;

    c->params_check = c->params_check_after = call_params_check(c);
    if ((*status = read_wanted(ctl, c->params, &w)))
        return 0;
    if ((e = export_file(c, w.fd, &file)) < 0)
        return control_answer(e, status);
    WITH_CALLS_OF(c->tenant);
    {
        WITH_TENANT(c->tenant);
        if ((*status = examine(c, &w, &file)))
            return 0;
    }
    for (uint32_t i = 0; i < w.count && e == 0; i++)
        e = import_one(c, &w, i, &file);
    if (e == 0)
        return answer(c, &w);
    roll_back_imports(c, &w);
    return control_answer(e, status);
}

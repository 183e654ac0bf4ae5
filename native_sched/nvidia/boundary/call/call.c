#include "call.h"
#include "native_sched/nvidia/rm/export_abi.h"
#include <errno.h>
#include <string.h>

const struct card *mediator_card(const struct mediator *m, uint32_t index)
{
    for (uint32_t i = 0; i < m->cards; i++)
        if (m->card[i].index == index)
            return &m->card[i];
    return NULL;
}

bool mediator_has_instances(const struct mediator *m)
{
    for (uint32_t i = 0; i < m->cards; i++)
        if (m->card[i].gpu_instance != RM_NO_INSTANCE)
            return true;
    return false;
}

/* What an import answers may be in the caller's memory already. */
uint32_t call_params_check(const struct call *c)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct rm_import_objects *in = (const void *)c->params;

    if (ctl->cmd != NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD)
        return store_check(c->params, c->params_bytes);
    return store_check(in, offsetof(struct rm_import_objects, type)) ^
           store_check(&in->count, sizeof(in->count) + sizeof(in->index));
}

uint32_t call_find_on(const struct call *c, const struct open_file *file, uint32_t client, uint32_t handle)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t slot = objects_find(o, client, handle);

    assert_held(&c->tenant->lock);
    return slot && o->slot[objects_root(o, slot)].file == file->id ? slot : 0;
}

uint32_t call_find(const struct call *c, uint32_t client, uint32_t handle)
{
    return call_find_on(c, &c->file, client, handle);
}

uint32_t call_find_kind(const struct call *c, uint32_t client, uint32_t handle, enum rm_kind kind)
{
    uint32_t slot = call_find(c, client, handle);

    return slot && rm_kind_of(c->tenant->objects.slot[slot].class_id) == kind ? slot : 0;
}

bool call_control_file(const struct call *c, struct open_file *out)
{
    struct open_file now;

    if (c->file.kind == NODE_CTL) {
        *out = c->file;
        return true;
    }
    return files_by_id(c->m->files, c->file.id, &now) && now.control &&
           files_by_id(c->m->files, now.control, out) && out->tenant == c->tenant;
}

struct driver_call call_for_driver(struct call *c, const struct open_file *file)
{
    return (struct driver_call){
        .file = file,
        .rm = &c->m->rm,
        .cmd = c->cmd,
        .row = c->row,
        .params_row = c->params_row,
        .outer = c->outer,
        .outer_bytes = c->outer_bytes,
        .params = c->params,
        .params_bytes = c->params_bytes,
        .params_max = PARAMS_MAX,
        .unshared = c->unshared,
        .reply_fd = -1,
    };
}

bool call_is_callers(struct call *c)
{
    struct driver_call d = call_for_driver(c, &c->file);

    return c->m->ops->must_continue && c->m->ops->must_continue(&d);
}

/* The memory that was read may belong to another process by now, so nothing is done in its name. Calls that
 * only the caller can make are refused here: their handlers have asked before (call_is_callers()). */
int call_execute(struct call *c, struct driver_call *d)
{
    int e;

    c->asked = true;
    if (!caller_waits(c->caller))
        return -EINTR;
    e = c->m->ops->execute(c->m->driver, d);
    return e == -EINPROGRESS ? -EPERM : e;
}

int call_driver_with(struct call *c, const struct open_file *aux, int *reply_fd)
{
    struct driver_call d = call_for_driver(c, &c->file);
    int e;

    d.aux_file = aux;
    e = call_execute(c, &d);
    if (reply_fd)
        *reply_fd = d.reply_fd;
    return e;
}

int call_driver_on(struct call *c, const struct open_file *file, uint32_t cmd, void *outer,
                   uint32_t outer_bytes)
{
    struct driver_call d = call_for_driver(c, file);

    if (cmd != c->cmd)
        d.row = d.params_row = NULL;
    d.cmd = cmd;
    d.outer = outer;
    d.outer_bytes = outer_bytes;
    return call_execute(c, &d);
}

int call_driver(struct call *c)
{
    return call_driver_with(c, NULL, NULL);
}

int call_uvm_without_fd(struct call *c, int32_t *fd)
{
    int32_t request = *fd;
    int e;

    *fd = -1;
    e = call_driver(c);
    *fd = request;
    return e;
}

int mediator_call(const struct mediator *m, const struct open_file *file, const struct open_file *aux,
                  uint32_t cmd, void *outer, uint32_t outer_bytes)
{
    struct driver_call d = {
        .file = file,
        .aux_file = aux,
        .rm = &m->rm,
        .cmd = cmd,
        .outer = outer,
        .outer_bytes = outer_bytes,
        .unshared = RM_NR(cmd) == NV_ESC_RM_FREE && mediator_has_instances(m),
        .reply_fd = -1,
    };

    return m->ops->execute(m->driver, &d);
}

int call_find_row(struct call *c)
{
    c->params_row = NULL;
    if (!(c->row = rm_command_row(&c->m->rm, c->cmd)))
        return -ENOTTY;
    c->outer_bytes = c->row->of == RM_ESCAPE ? RM_SIZE(c->cmd)
                                             : c->row->changes * rm_bytes(&c->m->rm, c->row->bytes);
    return 0;
}

void call_find_params_row(struct call *c)
{
    c->params_row = rm_params_row(&c->m->rm, c->row, c->outer);
}

bool call_changes(const struct call *c)
{
    return c->row->changes || (c->params_row && c->params_row->of == RM_CONTROL && c->params_row->changes);
}

uint32_t call_status(const struct call *c)
{
    uint32_t status = NV_OK, at = rm_status_at(c->row, c->outer_bytes);

    if (at != RM_NO_STATUS)
        memcpy(&status, c->outer + at, sizeof(status));
    return status;
}

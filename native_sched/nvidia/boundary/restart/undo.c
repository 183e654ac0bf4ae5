#include "undo.h"
#include "native_sched/nvidia/boundary/objects/retained.h"
#include "native_sched/nvidia/boundary/objects/shared.h"
#include "native_sched/nvidia/boundary/rm/handlers.h"
#include "native_sched/nvidia/boundary/uvm/uvm.h"
#include <errno.h>
#include <string.h>

static uint64_t control_of(const struct inflight_intent *was)
{
    return (uint64_t)was->parent << 32 | was->handle;
}

/* Out of the driver, then out of the account. Returns the driver's status: NV_OK too where it was not there.
 */
static uint32_t end(const struct mediator *m, struct tenant *t, const struct open_file *file,
                    const struct inflight_intent *was)
{
    struct rm_free f = {.root = was->client, .parent = was->parent, .handle = was->handle};
    struct objects *o = &t->objects;
    uint32_t slot = objects_find(o, was->client, was->handle);
    int e = mediator_call(m, file, NULL, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f, sizeof(f));

    if (e < 0)
        return NV_ERR_NOT_SUPPORTED;
    if (f.status != NV_OK && f.status != NV_ERR_OBJECT_NOT_FOUND &&
        f.status != NV_ERR_INVALID_OBJECT_HANDLE && f.status != NV_ERR_INVALID_CLIENT)
        return f.status;
    if (slot && o->slot[objects_root(o, slot)].file == file->id) {
        retained_end(m, t, slot, true);
        WITH_TENANT(t);
        objects_drop(o, slot, NULL, NULL);
    }
    return NV_OK;
}

/* What is in k->outer is the answer, and the driver was asked for nothing else. */
static void keep_answer(struct inflight *k)
{
    k->params_out_bytes = 0;
    k->written = false;
    inflight_enter(k, INFLIGHT_DONE);
}

static void finish(const struct mediator *m, struct inflight *k, uint32_t status)
{
    const struct rm_row *row = rm_command_row(&m->rm, (uint32_t)k->req.data.args[1]);
    uint32_t at = row ? rm_status_at(row, 0) : (uint32_t)RM_NO_STATUS;

    memcpy(k->outer, k->before, sizeof(k->outer));
    if (at != RM_NO_STATUS)
        memcpy(k->outer + at, &status, sizeof(status));
    keep_answer(k);
}

/* The driver takes no second registration: a no means that the first has been made. */
static void register_again(const struct mediator *m, const struct open_file *file,
                           const struct inflight_intent *was)
{
    struct rm_register_fd r = {.ctl_fd = -1};
    struct open_file control;

    if (files_by_id(m->files, control_of(was), &control)) {
        mediator_call(m, file, &control, RM_CMD(NV_ESC_REGISTER_FD, sizeof(r)), &r, sizeof(r));
        files_register(m->files, file->id, control.id);
    }
}

/* Ending a mapping twice is no error of the caller's: the second time there is none. Making one twice is the
 * same as once. So it is for an address space's registration and for peers, which may exist already, and for
 * a channel, which is unregistered first. */
static void again(const struct mediator *m, struct tenant *t, const struct open_file *file,
                  struct inflight *k)
{
    if (k->was.client == UVM_MAP_EXTERNAL_ALLOCATION || k->was.client == UVM_REGISTER_GPU_VASPACE ||
        k->was.client == UVM_REGISTER_CHANNEL || k->was.client == UVM_ENABLE_PEER_ACCESS) {
        if (k->was.handle)
            shared_take_back(m, file, k->was.parent, k->was.handle);
        k->begun = k->begun ? k->begun : k->req.id;
        inflight_enter(k, INFLIGHT_READ);
        return;
    }
    memcpy(k->outer, k->before, sizeof(k->outer));
    if (uvm_again(m, t, file, k->was.client, k->outer) < 0) {
        inflight_enter(k, INFLIGHT_READ);
        return;
    }
    keep_answer(k);
}

void inflight_roll_back(const struct mediator *m, struct tenant *t, struct inflight *k)
{
    struct open_file file;
    uint32_t cmd = (uint32_t)k->req.data.args[1];

    if (!k->req.id || k->stage != INFLIGHT_INTENDED)
        return;
    /* With the file all that was made through it has ended, in the account too. */
    if (k->check != inflight_check(k) || !files_by_id(m->files, k->was.file, &file) || file.tenant != t) {
        inflight_enter(k, INFLIGHT_NONE);
        return;
    }
    switch ((enum intent)k->was.what) {
    case INTENT_FREE:
        finish(m, k, end(m, t, &file, &k->was));
        return;
    case INTENT_REGISTER:
        register_again(m, &file, &k->was);
        finish(m, k, NV_OK);
        return;
    case INTENT_UVM:
        again(m, t, &file, k);
        return;
    case INTENT_OS_EVENT:
        os_event_undo(m, &file, k->was.client, k->was.handle);
        if (RM_NR(cmd) == NV_ESC_FREE_OS_EVENT)
            finish(m, k, NV_OK);
        else
            inflight_enter(k, INFLIGHT_READ);
        return;
    case INTENT_MAKE:
        if (RM_NR(cmd) == NV_ESC_RM_DUP_OBJECT)
            dup_undo_share(m, t, (const struct rm_dup *)(const void *)k->before);
        /* Where that fails it can be there, uncharged: the audit, which is due then, has the last word. */
        end(m, t, &file, &k->was);
        inflight_enter(k, INFLIGHT_READ);
        return;
    }
    inflight_enter(k, INFLIGHT_NONE);
}

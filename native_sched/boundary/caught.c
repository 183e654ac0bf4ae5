#include "caught.h"
#include "registered.h"
#include "shared.h"
#include <errno.h>
#include <string.h>

const struct store_layout listener_layout = {
    .kind = STORE_LISTENER,
    .record_bytes = sizeof(struct listener_page),
    .max_bytes = sizeof(struct listener_page),
};

/* What follows in the program is stored after what came before: a kill knows no other order. */
static void enter(struct caught *k, enum caught_stage stage)
{
    __atomic_store_n(&k->stage, (uint32_t)stage, __ATOMIC_RELEASE);
}

static uint32_t check_of(const struct caught *k)
{
    return store_check(&k->was, sizeof(k->was));
}

void caught_read(struct call *c, const uint8_t *outer)
{
    struct caught *k = c->caught;

    if (!k || c->outer_bytes > sizeof(k->before))
        return;
    memcpy(k->before, outer, c->outer_bytes);
    k->file = c->file.id;
    k->params_bytes = 0;
    k->begun = c->again;
    enter(k, CAUGHT_READ);
}

void caught_read_params(struct call *c)
{
    struct caught *k = c->caught;

    if (!k || k->stage != CAUGHT_READ || c->params_bytes > sizeof(k->params_before))
        return;
    memcpy(k->params_before, c->params, c->params_bytes);
    k->params_at = c->params_at;
    __atomic_store_n(&k->params_bytes, c->params_bytes, __ATOMIC_RELEASE);
}

void caught_intend(struct call *c, enum intent what, const struct open_file *file, uint32_t client,
                   uint32_t parent, uint32_t handle)
{
    struct caught *k = c->caught;

    if (!k || k->stage != CAUGHT_READ)
        return;
    k->was = (struct caught_intent){
        .what = what, .client = client, .parent = parent, .handle = handle, .file = file->id};
    k->check = check_of(k);
    enter(k, CAUGHT_INTENDED);
}

void caught_begun(struct call *c)
{
    struct caught *k = c->caught;

    if (!k || k->stage != CAUGHT_INTENDED)
        return;
    __atomic_store_n(&k->begun, true, __ATOMIC_RELEASE);
    enter(k, CAUGHT_READ);
}

void caught_done(struct call *c, int result)
{
    struct caught *k = c->caught;
    uint32_t out = c->params_out ? c->params_bytes : 0;

    if (!k || k->stage == CAUGHT_NOTHING || out > sizeof(k->params))
        return;
    memcpy(k->outer, c->outer, c->outer_bytes);
    memcpy(k->params, c->params, out);
    k->params_at = c->params_at;
    k->params_out_bytes = out;
    k->result = result;
    k->said = c->said;
    k->said_after = c->said_after;
    k->written = false;
    enter(k, CAUGHT_DONE);
}

static uint64_t control_of(const struct caught_intent *was)
{
    return (uint64_t)was->parent << 32 | was->handle;
}

/* Out of the driver, then out of the books. Returns the driver's status: NV_OK where it was not there any more. */
static uint32_t end(const struct mediator *m, struct tenant *t, const struct open_file *file,
                    const struct caught_intent *was)
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
    WITH_TENANT(t);
    if (slot && o->slot[objects_root(o, slot)].file == file->id) {
        registered_note(m, t, slot);
        objects_drop(o, slot, NULL, NULL);
    } else {
        registered_note_channel(t, was->client, was->parent, was->handle);
    }
    return NV_OK;
}

/* What is in k->outer is the answer, and the driver was asked for nothing else. */
static void answered(struct caught *k)
{
    k->params_out_bytes = 0;
    k->result = 0;
    k->written = false;
    enter(k, CAUGHT_DONE);
}

static void finish(struct caught *k, uint32_t cmd, uint32_t status)
{
    uint32_t at = mediate_status_at(cmd);

    memcpy(k->outer, k->before, sizeof(k->outer));
    if (at != RM_NO_STATUS)
        memcpy(k->outer + at, &status, sizeof(status));
    answered(k);
}

/* The driver takes no second registration: a no means that the first has been made. */
static void register_again(const struct mediator *m, const struct open_file *file,
                           const struct caught_intent *was)
{
    struct rm_register_fd r = {.ctl_fd = -1};
    struct open_file control;

    if (files_by_id(m->files, control_of(was), &control)) {
        mediator_call(m, file, &control, RM_CMD(NV_ESC_REGISTER_FD, sizeof(r)), &r, sizeof(r));
        files_register(m->files, file->id, control.id);
    }
}

/* Mappings end once: a second time there are none, which is no error of the caller's. One is made anew: twice is the same. So is
 * an address space registered, which may find that it has been. */
static void again(const struct mediator *m, struct tenant *t, const struct open_file *file, struct caught *k)
{
    if (k->was.client == UVM_MAP_EXTERNAL_ALLOCATION || k->was.client == UVM_REGISTER_GPU_VASPACE) {
        shared_take_back(m, file, k->was.parent, k->was.handle);
        k->begun = true;
        enter(k, CAUGHT_READ);
        return;
    }
    memcpy(k->outer, k->before, sizeof(k->outer));
    if (uvm_again(m, t, file, k->was.client, k->outer) < 0) {
        enter(k, CAUGHT_READ);
        return;
    }
    answered(k);
}

void caught_settle(const struct mediator *m, struct tenant *t, struct caught *k)
{
    struct open_file file;
    uint32_t cmd = (uint32_t)k->req.data.args[1];

    if (!k->req.id || k->stage != CAUGHT_INTENDED)
        return;
    /* With the file all that was made through it has gone, from the books too. */
    if (k->check != check_of(k) || !files_by_id(m->files, k->was.file, &file) || file.tenant != t) {
        enter(k, CAUGHT_NOTHING);
        return;
    }
    switch ((enum intent)k->was.what) {
    case INTENT_FREE:
        finish(k, cmd, end(m, t, &file, &k->was));
        return;
    case INTENT_REGISTER:
        register_again(m, &file, &k->was);
        finish(k, cmd, NV_OK);
        return;
    case INTENT_UVM:
        again(m, t, &file, k);
        return;
    case INTENT_EXPORT:
        export_undo(m, t, &file, k->was.client, k->was.handle, k->was.parent);
        enter(k, CAUGHT_READ);
        return;
    case INTENT_OS_EVENT:
        os_event_undo(m, &file, k->was.client, k->was.handle);
        if (RM_NR(cmd) == NV_ESC_FREE_OS_EVENT)
            finish(k, cmd, NV_OK);
        else
            enter(k, CAUGHT_READ);
        return;
    case INTENT_MAKE:
        if (RM_NR(cmd) == NV_ESC_RM_DUP_OBJECT)
            dup_undo_share(m, t, (const struct rm_dup *)(const void *)k->before);
        /* Where that fails it can be there, uncharged: the audit, which is due then, has the last word. */
        end(m, t, &file, &k->was);
        enter(k, CAUGHT_READ);
        return;
    }
    enter(k, CAUGHT_NOTHING);
}

bool caught_again(const struct caught *k, struct call *c)
{
    if (k->stage != CAUGHT_READ || k->file != c->file.id || c->outer_bytes > sizeof(k->before) ||
        k->params_bytes > sizeof(k->params_before))
        return false;
    c->again = k->begun;
    memcpy(c->outer, k->before, c->outer_bytes);
    memcpy(c->params, k->params_before, k->params_bytes);
    c->guessed_at = k->params_at;
    c->guessed_bytes = k->params_bytes;
    return true;
}

void caught_result(const struct caught *k, struct call *c)
{
    memcpy(c->outer, k->outer, sizeof(k->outer));
    memcpy(c->params, k->params, sizeof(k->params));
    c->params_at = k->params_at;
    c->params_bytes = k->params_out_bytes <= sizeof(k->params) ? k->params_out_bytes : 0;
    c->params_out = c->params_bytes;
    c->said = k->said;
    c->said_after = k->said_after;
    c->file.id = k->file;
}

#include "mig.h"
#include "native_sched/channels/groups.h"
#include "running.h"
#include <errno.h>

enum { INSTANCE_ANSWER_MAX = 512 };

void mig_forget(struct continued *l, uint64_t file)
{
    for (struct subscription *s = l->subscription; s < l->subscription + SUBSCRIPTIONS_MAX; s++)
        if (s->file == file)
            s->file = 0;
}

static struct subscription *free_entry(struct continued *l)
{
    for (struct subscription *s = l->subscription; s < l->subscription + SUBSCRIPTIONS_MAX; s++)
        if (!s->file)
            return s;
    return NULL;
}

/* One object proves one call: of two that name it, the other could have made anything. */
static bool awaited(const struct continued *l, uint32_t client, uint32_t handle)
{
    for (const struct subscription *s = l->subscription; s < l->subscription + SUBSCRIPTIONS_MAX; s++)
        if (s->file && !s->ended && s->client == client && s->handle == handle)
            return true;
    return false;
}

/* NV_OK where it may be made, or what RM says to a caller without the capability. */
static uint32_t examine(const struct call *c, const struct creation *a)
{
    const struct rm_instance *want = (const void *)c->params;
    const struct objects *o = &c->tenant->objects;
    uint32_t parent = call_find(c, a->root, a->parent);
    uint32_t above = rm_kind_of(a->class_id) == RM_KIND_GPU_INSTANCE ? NV20_SUBDEVICE_0
                                                                     : AMPERE_SMC_PARTITION_REF;
    const struct card *card;

    assert_held(&c->tenant->lock);
    if (!parent)
        return call_find(c, a->root, a->root) ? NV_ERR_INVALID_OBJECT_PARENT : NV_ERR_INVALID_CLIENT;
    if (o->slot[parent].class_id != above)
        return NV_ERR_INVALID_OBJECT_PARENT;
    card = mediator_card(c->m, o->slot[parent].card);
    if (!card || card->gpu_instance == RM_NO_INSTANCE)
        return NV_ERR_NOT_SUPPORTED;
    if (c->params_bytes != sizeof(*want))
        return NV_ERR_INVALID_ARGUMENT;
    if (awaited(c->tenant->continued, a->root, a->handle))
        return NV_ERR_INSERT_DUPLICATE_NAME;
    if (want->id !=
        (rm_kind_of(a->class_id) == RM_KIND_GPU_INSTANCE ? card->gpu_instance : card->compute_instance))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    return NV_OK;
}

/* The caller's own struct is what the driver will read: a name that we gave has to be in it. */
static int say_handle(struct call *c, uint32_t handle)
{
    struct rm_alloc_short *o = (void *)c->outer;

    if (o->handle == handle)
        return 0;
    o->handle = handle;
    return caller_write_both(c->caller, c->outer_at, c->outer, c->outer_bytes, 0, NULL, 0);
}

struct answer mig_subscribe(struct call *c, struct creation *a)
{
    struct tenant *t = c->tenant;
    struct continued *l = t->continued;
    struct subscription *s = free_entry(l);
    uint32_t status;
    int e;

    assert_held(&t->calls);
    if (!caller_waits(c->caller))
        return failed(-EINTR);
    {
        WITH_TENANT(t);
        if ((status = examine(c, a)) || (status = choose_handle(t, a->root, &a->handle)))
            return answered(status);
        if (!s || l->runs == CONTINUED_THREADS_MAX || continued_unconfirmed(t) >= CONTINUED_UNCONFIRMED_MAX ||
            !files_open(c->m->files, &c->file))
            return answered(NV_ERR_NO_MEMORY);
    }
    if ((e = say_handle(c, a->handle)) < 0 || (e = groups_unconfirmed(t->groups, true)) < 0)
        return failed(e);
    *s = (struct subscription){
        .client = a->root,
        .parent = a->parent,
        .handle = a->handle,
        .class_id = a->class_id,
        .thread = (pid_t)c->caller->req->pid,
    };
    __atomic_store_n(&s->file, c->file.id, __ATOMIC_RELEASE);
    return continued_begin(c);
}

/* A control that objects of the class answer, of its own size: RM looks for no object before it has compared
 * that
 * (_rmapiRmControl()). It changes nothing, and none of another class knows it. */
static int is_there(struct call *c, const struct subscription *s)
{
    struct rm_control ctl = {
        .client = s->client,
        .object = s->handle,
        .cmd = rm_kind_of(s->class_id) == RM_KIND_GPU_INSTANCE ? NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS
                                                               : NVC638_CTRL_CMD_GET_UUID,
    };
    _Alignas(16) uint8_t answer[INSTANCE_ANSWER_MAX] = {0};
    int e, bytes = rm_control_params(&c->m->rm, ctl.cmd);
    struct driver_call d;
    struct open_file file;

    if (!files_by_id(c->m->files, s->file, &file))
        return -EBADF;
    if (bytes <= 0 || bytes > (int)sizeof(answer))
        return -ENOTSUP;
    ctl.params_size = (uint32_t)bytes;
    d = call_for_driver(c, &file);
    d.cmd = RM_CMD(NV_ESC_RM_CONTROL, sizeof(ctl));
    d.outer = (uint8_t *)&ctl;
    d.outer_bytes = sizeof(ctl);
    d.params = answer;
    d.params_bytes = ctl.params_size;
    e = c->m->ops->execute(c->m->driver, &d);
    return e < 0 ? e : ctl.status == NV_OK;
}

/* False for one that finds no room. It takes nothing and ends with its parent, but proves no call: it would
 * prove others too. */
static bool account_add(struct call *c, const struct subscription *s)
{
    struct tenant *t = c->tenant;
    struct open_file file;
    WITH_TENANT(t);
    uint32_t parent = files_by_id(c->m->files, s->file, &file) ? call_find_on(c, &file, s->client, s->parent)
                                                               : 0;
    int64_t slot;

    if (!parent || objects_find(&t->objects, s->client, s->handle))
        return false;
    slot = objects_add(&t->objects, parent, s->client, s->handle, s->class_id);
    if (slot < 0)
        return false;
    t->objects.slot[slot].card = t->objects.slot[parent].card;
    objects_commit(&t->objects, (uint32_t)slot);
    return true;
}

int mig_poll(struct call *c)
{
    struct continued *l = c->tenant->continued;
    bool found = false;
    int e;

    assert_held(&c->tenant->calls);
    for (struct subscription *s = l->subscription; s < l->subscription + SUBSCRIPTIONS_MAX; s++) {
        if (!s->file || s->ended)
            continue;
        /* Before it is asked: what has ended by then has made it or never will. */
        bool ended = !runs_on(l, s->thread);

        if ((e = is_there(c, s)) == -EAGAIN)
            continue;
        if (e < 0 && e != -EBADF)
            return e;
        if (e < 0 || (e > 0 && account_add(c, s))) {
            s->file = 0;
            found = true;
        } else {
            s->ended = e > 0 || ended;
        }
    }
    return found && !continued_any_unconfirmed(c->tenant) ? groups_unconfirmed(c->tenant->groups, false) : 0;
}

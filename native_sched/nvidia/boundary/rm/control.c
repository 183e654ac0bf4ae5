/* RM_CONTROL: what becomes of each is its row's in interface.def. */
#include "control.h"
#include "handlers.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/channels/groups.h"
#include "native_sched/nvidia/rm/export_abi.h"
#include "native_sched/nvidia/rm/peers_abi.h"
#include "view.h"
#include <errno.h>
#include <stddef.h>

typedef int (*control_fn)(struct call *c, uint32_t *status);

static bool is_own(struct call *c, uint32_t client)
{
    WITH_TENANT(c->tenant);

    return objects_find(&c->tenant->objects, client, client) != 0;
}

/* RM answers what it keeps to whoever names a client that it has, without a look at whose it is. */
static int pass(struct call *c, uint32_t *status)
{
    if (!is_own(c, ((const struct rm_control *)(const void *)c->outer)->client)) {
        *status = NV_ERR_INVALID_CLIENT;
        return 0;
    }
    return call_driver(c);
}

/* The channel group that the call names, by itself or by one of its channels; 0 when this call's file has
 * none. */
static uint32_t own_group(struct call *c)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    WITH_TENANT(c->tenant);
    uint32_t slot = call_find(c, ctl->client, ctl->object);

    if (slot && ctl->cmd == NVA06F_CTRL_CMD_GPFIFO_SCHEDULE)
        slot = o->slot[slot].parent;
    return slot && rm_kind_of(o->slot[slot].class_id) == RM_KIND_GROUP ? o->slot[slot].handle : 0;
}

static int on_group(int e, uint32_t *status)
{
    *status = e == -ESRCH ? NV_ERR_INVALID_OBJECT_HANDLE : NV_OK;
    return e == -ESRCH ? 0 : e;
}

/* The scheduler alone takes groups off their engines; RM has it return when the group is off, and the program
 * goes on. */
static int preempt(struct call *c, uint32_t *status)
{
    return on_group(own_group(c) ? 0 : -ESRCH, status);
}

/* Written for the next mgpud. Each is one word, so mgpud may die at any instruction. */
static void note_requested(struct call *c, uint32_t group, const uint32_t *wanted,
                           const uint64_t *timeslice_us)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct objects *o = &c->tenant->objects;
    WITH_TENANT(c->tenant);
    uint32_t slot = objects_find(o, ctl->client, group);

    if (slot && wanted)
        o->slot[slot].wanted = *wanted;
    if (slot && timeslice_us)
        o->slot[slot].timeslice_us = *timeslice_us;
}

/* A channel group with a second name of its own kind, which only whole cards have (dup.c). The first name
 * puts it on its engine: RM adds a channel when that name is scheduled. */
static bool is_duplicated(struct call *c, uint32_t group)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    WITH_TENANT(c->tenant);
    uint32_t slot = objects_find(o, ctl->client, group), i = o->slot[slot].alias_next;

    while (i && i != slot && rm_kind_of(o->slot[i].class_id) != RM_KIND_GROUP)
        i = o->slot[i].alias_next;
    return i && i != slot;
}

/* Answered, and carried out as far as the scheduler lets the tenant run: programs do not start without it. */
static int schedule_group(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    uint32_t wanted = ((const struct rm_tsg_schedule *)(const void *)c->params)->enable, group = own_group(c);

    if (ctl->cmd == NVA06F_CTRL_CMD_GPFIFO_SCHEDULE && is_duplicated(c, group))
        return call_driver(c);
    note_requested(c, group, &wanted, NULL);
    return on_group(groups_want(c->tenant->groups, ctl->client, group, wanted), status);
}

static int set_timeslice(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct rm_tsg_timeslice *want = (const void *)c->params;
    uint32_t group = own_group(c);

    note_requested(c, group, NULL, &want->timeslice_us);
    return on_group(groups_set_timeslice(c->tenant->groups, ctl->client, group, want->timeslice_us), status);
}

static int get_timeslice(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct rm_tsg_timeslice *have = (void *)c->params;

    return on_group(groups_get_timeslice(c->tenant->groups, ctl->client, own_group(c), &have->timeslice_us),
                    status);
}

/* Where this one ends before, the next serves the call anew. */
static void note_stopped(struct tenant *t, const struct rm_disable_channels *p)
{
    struct objects *o = &t->objects;
    WITH_TENANT(t);

    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t slot = objects_find(o, p->client[i], p->channel[i]);

        if (slot)
            o->slot[slot].stopped = p->disable != 0;
    }
}

/* libcuda disables its own channels, for example before it ends them. The request is recorded, like
 * GPFIFO_SCHEDULE: an enabled channel runs when the scheduler lets it. RM would take any client's channels
 * here. */
static int disable_channels(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct rm_disable_channels *p = (const void *)c->params;
    int e;
    {
        const struct objects *o = &c->tenant->objects;
        WITH_TENANT(c->tenant);
        uint32_t subdevice = call_find_kind(c, ctl->client, ctl->object, RM_KIND_SUBDEVICE), slot;

        *status = NV_ERR_INVALID_OBJECT_HANDLE;
        if (!subdevice)
            return 0;
        *status = NV_ERR_INVALID_ARGUMENT;
        if (p->count > RM_MAX_DISABLE || p->rewind_gp_put || p->runlist_preempt_event)
            return 0;
        *status = NV_ERR_INSUFFICIENT_PERMISSIONS;
        for (uint32_t i = 0; i < p->count; i++) {
            slot = call_find(c, p->client[i], p->channel[i]);
            if (!slot || rm_kind_of(o->slot[slot].class_id) != RM_KIND_CHANNEL)
                return 0;
        }
    }
    e = groups_stop(c->tenant->groups, p->client, p->channel, p->count, p->disable);
    if (e != -ESRCH)
        note_stopped(c->tenant, p);
    *status = e == -ESRCH ? NV_ERR_INSUFFICIENT_PERMISSIONS : NV_OK;
    return e == -ESRCH ? 0 : e;
}

/* Compute work that may not be preempted between instructions would keep online work waiting for the end of a
 * block, or of a kernel. Programs ask for what we give them. RM refuses it to contexts that draw, which get
 * what they ask for: between draws nothing preempts them anyway. For preemption within a triangle the driver
 * takes memory by itself, which nothing charges: a share's work of graphics is preempted between draws, as
 * without this call. */
static int keep_preemptible(struct call *c, uint32_t *status)
{
    struct rm_preemption_mode *mode = (void *)c->params;
    uint32_t asked;
    int e;

    if (c->params_bytes < sizeof(*mode))
        return call_driver(c);
    if (mode->flags & RM_PREEMPTION_SETS_GRAPHICS && mode->graphics && !c->tenant->whole) {
        *status = NV_ERR_NOT_SUPPORTED;
        return 0;
    }
    if (!(mode->flags & RM_PREEMPTION_SETS_COMPUTE))
        return call_driver(c);
    asked = mode->compute;
    mode->compute = RM_PREEMPTION_BY_INSTRUCTION;
    if ((e = call_driver(c)) < 0 || *status != NV_ERR_INVALID_REQUEST)
        return e;
    mode->compute = asked;
    return call_driver(c);
}

/* A depth buffer's place for a channel, which the parameters name by a client. */
static int bind_zcull(struct call *c, uint32_t *status)
{
    const struct {
        uint32_t client, channel;
    } *asked = (const void *)c->params;
    uint32_t slot;

    {
        WITH_TENANT(c->tenant);
        slot = call_find_kind(c, asked->client, asked->channel, RM_KIND_CHANNEL);
    }
    if (slot)
        return call_driver(c);
    *status = NV_ERR_INVALID_CLIENT;
    return 0;
}

/* A column of the controls in rm_rows[], in their order. needs: bytes that the handler reads. RM judges the
 * whole size, which differs by version. */
#define SERVED(served, ...) \
    {                       \
        served              \
    }
#define SERVED_PASSED                   .serve = pass
#define SERVED_MEDIATED(handler, bytes) .serve = handler, .needs = bytes
#define SERVED_ANSWERED(handler, bytes) .serve = handler, .needs = bytes
#define SERVED_REFUSED(status)          .serve = NULL
static const struct {
    control_fn serve;
    uint32_t needs;
} served[] = {
#define CONTROL(name, number, bytes, ...) SERVED(SERVED_##__VA_ARGS__, ),
#include "native_sched/nvidia/rm/interface.def"
};

static bool has_params(const struct rm_control *ctl, uint32_t needs)
{
    return ctl->params_size >= needs && ctl->params_size <= PARAMS_MAX && !ctl->params == !ctl->params_size;
}

/* It may name any class, or none: RM looks at nothing else of it (control.c, NVXXXX_CTRL_CMD_NULL). */
static bool is_null(uint32_t cmd)
{
    return !(cmd & RM_CONTROL_NUMBER_MASK);
}

/* Commands that interface.def does not have may hold pointers, or tell of other tenants: RM's own "not
 * supported". */
struct answer mediate_control(struct call *c)
{
    struct rm_control *ctl = (void *)c->outer;
    const struct rm_row *row = c->params_row;
    control_fn serve;
    bool fits;
    int e;

    if (is_null(ctl->cmd))
        return answered(NV_OK);
    if (!row || row->disposition == RM_REFUSED)
        return answered(row ? row->status : NV_ERR_NOT_SUPPORTED);
    serve = served[row - rm_rows - RM_CONTROLS_AT].serve;
    fits = row->in_place ? ctl->params_size == rm_bytes(&c->m->rm, row->bytes) && ctl->params
                         : has_params(ctl, served[row - rm_rows - RM_CONTROLS_AT].needs);
    if (!fits)
        return answered(NV_ERR_INVALID_ARGUMENT);
    ctl->status = NV_OK;
    if (row->in_place) {
        e = serve(c, &ctl->status);
        return driver_answer(e, ctl->status);
    }
    if ((e = inflight_params(c, ctl->params, ctl->params_size)) < 0)
        return failed(e);
    c->params_out = c->params_bytes != 0;
    e = serve(c, &ctl->status);
    if (e < 0 || ctl->status != NV_OK)
        c->params_out = false;
    return driver_answer(e, ctl->status);
}

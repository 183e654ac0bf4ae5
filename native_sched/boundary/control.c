/* RM_CONTROL: one row per command that is more than passed on. */
#include "control.h"
#include "../channels/groups.h"
#include "rm_export_abi.h"
#include "view.h"
#include <errno.h>
#include <stddef.h>

typedef int (*control_fn)(struct call *c, uint32_t *status);

static int pass(struct call *c, uint32_t *status)
{
    (void)status;
    return call_driver(c);
}

/* The channel group that the call names, by itself or by one of its channels; 0 when this call's file has none. */
static uint32_t own_group(struct call *c)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    WITH_TENANT(c->tenant);
    uint32_t slot = call_find(c, ctl->client, ctl->object);

    if (slot && ctl->cmd == NVA06F_CTRL_CMD_GPFIFO_SCHEDULE)
        slot = o->slot[slot].parent;
    return slot && o->slot[slot].class_id == KEPLER_CHANNEL_GROUP_A ? o->slot[slot].handle : 0;
}

static int on_group(int e, uint32_t *status)
{
    *status = e == -ESRCH ? NV_ERR_INVALID_OBJECT_HANDLE : NV_OK;
    return e == -ESRCH ? 0 : e;
}

/* The scheduler alone takes groups off their engines; RM has it return when the group is off, and the program goes on. */
static int preempt(struct call *c, uint32_t *status)
{
    return on_group(own_group(c) ? 0 : -ESRCH, status);
}

/* For the next worker. Each is a word: no matter when this one ends. */
static void note_wish(struct call *c, uint32_t group, const uint32_t *wanted, const uint64_t *timeslice_us)
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

/* Answered, and carried out as far as the scheduler lets the tenant run: programs do not start without it. */
static int schedule_group(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    uint32_t wanted = ((const struct rm_tsg_schedule *)(const void *)c->params)->enable, group = own_group(c);

    note_wish(c, group, &wanted, NULL);
    return on_group(groups_want(c->tenant->groups, ctl->client, group, wanted), status);
}

static int set_timeslice(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct rm_tsg_timeslice *want = (const void *)c->params;
    uint32_t group = own_group(c);

    note_wish(c, group, NULL, &want->timeslice_us);
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

/* libcuda disables channels of its own, when it ends them for one. Recorded as its wish, like GPFIFO_SCHEDULE: what it enables
 * runs when the scheduler lets it. RM would take anybody's channels here. */
static int disable_channels(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct rm_disable_channels *p = (const void *)c->params;
    int e;
    {
        const struct objects *o = &c->tenant->objects;
        WITH_TENANT(c->tenant);
        uint32_t subdevice = call_find(c, ctl->client, ctl->object), slot;

        *status = NV_ERR_INVALID_OBJECT_HANDLE;
        if (!subdevice || o->slot[subdevice].class_id != NV20_SUBDEVICE_0)
            return 0;
        *status = NV_ERR_INVALID_ARGUMENT;
        if (p->count > RM_MAX_DISABLE || p->rewind_gp_put || p->runlist_preempt_event)
            return 0;
        *status = NV_ERR_INSUFFICIENT_PERMISSIONS;
        for (uint32_t i = 0; i < p->count; i++) {
            slot = call_find(c, p->client[i], p->channel[i]);
            if (!slot || !rm_class_is_channel(o->slot[slot].class_id))
                return 0;
        }
    }
    e = groups_stop(c->tenant->groups, p->client, p->channel, p->count, p->disable);
    if (e != -ESRCH)
        note_stopped(c->tenant, p);
    *status = e == -ESRCH ? NV_ERR_INSUFFICIENT_PERMISSIONS : NV_OK;
    return e == -ESRCH ? 0 : e;
}

/* Compute work that may not be preempted between instructions would keep online work waiting for the end of a block, or of
 * a kernel. Programs ask for what we give them. */
static int keep_preemptible(struct call *c, uint32_t *status)
{
    struct rm_preemption_mode *mode = (void *)c->params;

    (void)status;
    if (c->params_bytes >= sizeof(*mode) && mode->flags & RM_PREEMPTION_SETS_COMPUTE)
        mode->compute = RM_PREEMPTION_BY_INSTRUCTION;
    return call_driver(c);
}

enum { GPU_ID = sizeof(uint32_t) };

/* Those without a row are passed on where interface.def says so. */
static const struct control {
    uint32_t cmd;
    control_fn serve; /* NULL: refused. A tenant that could schedule its own channels could resume itself. */
    /* Bytes that are looked at. How many there are is RM's to judge, which has a size for each version. */
    uint32_t needs;
} controls[] = {
    {NV2080_CTRL_CMD_FB_GET_INFO_V2, view_fb_info, offsetof(struct rm_fb_info, entry)},
    {NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, view_attached_ids, sizeof(struct rm_gpu_ids)},
    {NV0000_CTRL_CMD_GPU_GET_ID_INFO, view_id_info, sizeof(struct rm_id_info)},
    {NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, control_probed_ids, 2 * sizeof(struct rm_gpu_ids)},
    {NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS, control_active_ids, sizeof(struct rm_active_ids)},
    {NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS, control_gpu_instances, sizeof(struct rm_gpu_instances)},
    {NV0000_CTRL_CMD_GPU_ATTACH_IDS, control_attach, sizeof(struct rm_gpu_ids)},
    {NV0000_CTRL_CMD_GPU_DETACH_IDS, control_attach, sizeof(struct rm_gpu_ids)},
    {NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, control_of_card, GPU_ID},
    {NV0000_CTRL_CMD_GPU_GET_PCI_INFO, control_of_card, GPU_ID},
    {NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID, control_of_card, GPU_ID},
    {NV0000_CTRL_CMD_GPU_QUERY_DRAIN_STATE, control_of_card, GPU_ID},
    {NV0000_CTRL_CMD_GPU_ASYNC_ATTACH_ID, control_of_card, GPU_ID},
    {NV0000_CTRL_CMD_GPU_WAIT_ATTACH_ID, control_of_card, GPU_ID},
    {NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, keep_preemptible, sizeof(struct rm_preemption_mode)},
    {NV2080_CTRL_CMD_GPU_GET_PIDS, view_pids, sizeof(struct rm_pids)},
    {NV2080_CTRL_CMD_GPU_GET_PID_INFO, view_pid_info, sizeof(struct rm_pid_info)},
    {NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, control_utilization, 0},
    {NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, control_export, sizeof(struct rm_export_object)},
    {NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, control_export, sizeof(struct rm_export_objects)},
    {NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD, control_export, sizeof(struct rm_export_create)},
    {NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, control_import, sizeof(struct rm_import_object)},
    {NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, control_import, sizeof(struct rm_import_objects)},
    {NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, control_export_info, sizeof(struct rm_export_info)},
    {NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY, control_inherited_share,
     sizeof(struct rm_share_policy)},
    {NV2080_CTRL_CMD_GPU_GET_NAME_STRING, pass, 0},
    {NV2080_CTRL_CMD_GPU_GET_GID_INFO, pass, 0},
    {NV2080_CTRL_CMD_MC_GET_ARCH_INFO, pass, 0},
    {NV2080_CTRL_CMD_BUS_GET_PCI_INFO, pass, 0},
    {NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, control_p2p_caps_lists, sizeof(struct rm_p2p_caps)},
    {NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2, control_p2p_caps, sizeof(struct rm_p2p_caps)},
    {NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX, control_p2p_matrix, sizeof(struct rm_p2p_matrix)},
    {NV0000_CTRL_CMD_SYSTEM_GET_FABRIC_STATUS, control_fabric_status, sizeof(uint32_t)},
    {NV2080_CTRL_CMD_GET_GPU_FABRIC_PROBE_INFO, control_no_links, 0},
    {NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS, control_no_links, 0},
    {NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS, control_no_links, 0},
    {NV0080_CTRL_CMD_GPU_GET_CLASSLIST, control_class_list, sizeof(struct rm_class_list)},
    {NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, control_classes, sizeof(struct rm_classes)},
    {NV906F_CTRL_CMD_RESET_CHANNEL, NULL, 0},
    {NVA06C_CTRL_CMD_GET_TIMESLICE, get_timeslice, sizeof(struct rm_tsg_timeslice)},
    {NVA06C_CTRL_CMD_GET_INFO, pass, 0},
    {NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS, pass, 0},
    {NVC638_CTRL_CMD_GET_UUID, pass, 0},
    {NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, schedule_group, sizeof(uint8_t)},
    {NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, schedule_group, sizeof(uint8_t)},
    {NVA06C_CTRL_CMD_SET_TIMESLICE, set_timeslice, sizeof(struct rm_tsg_timeslice)},
    {NVA06C_CTRL_CMD_PREEMPT, preempt, sizeof(struct rm_tsg_preempt)},
    {NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, NULL, 0},
    {NVA06C_CTRL_CMD_MAKE_REALTIME, NULL, 0},
    {NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, disable_channels, sizeof(struct rm_disable_channels)},
};

static int refuse_scheduling(struct call *c, uint32_t *status)
{
    (void)c;
    *status = NV_ERR_INSUFFICIENT_PERMISSIONS;
    return 0;
}

/* How the control is served, into *out; false: not at all. */
static bool server_of(uint32_t cmd, int bytes, struct control *out)
{
    for (size_t i = 0; i < sizeof(controls) / sizeof(*controls); i++)
        if (controls[i].cmd == cmd) {
            *out = controls[i];
            return true;
        }
    *out = (struct control){.cmd = cmd, .serve = pass};
    if (bytes == RM_BYTES_CALLERS)
        return true;
    out->serve = control_lists;
    out->needs = (uint32_t)bytes;
    return control_has_lists(cmd);
}

static bool has_params(const struct rm_control *ctl, uint32_t needs)
{
    return ctl->params_size >= needs && ctl->params_size <= PARAMS_MAX && !ctl->params == !ctl->params_size;
}

/* Of each class, and of none: RM looks at no more of it (control.c, NVXXXX_CTRL_CMD_NULL). */
static bool is_null(uint32_t cmd)
{
    return !(cmd & RM_CONTROL_NUMBER_MASK);
}

/* Commands that interface.def does not have may hold pointers, or tell of other tenants: RM's own "not supported". */
int mediate_control(struct call *c)
{
    struct rm_control *ctl = (void *)c->outer;
    int e, bytes = rm_control_params(&c->m->rm, ctl->cmd);
    struct control row;

    ctl->status = NV_ERR_NOT_SUPPORTED;
    if (is_null(ctl->cmd)) {
        ctl->status = NV_OK;
        return 0;
    }
    if (bytes < 0 || !server_of(ctl->cmd, bytes, &row))
        return 0;
    if (!row.serve)
        return refuse_scheduling(c, &ctl->status);
    if (row.serve == control_utilization ? (int)ctl->params_size != bytes || !ctl->params
                                         : !has_params(ctl, row.needs)) {
        ctl->status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    ctl->status = NV_OK;
    if (row.serve == control_utilization)
        return control_utilization(c, &ctl->status);
    if ((e = call_params(c, ctl->params, ctl->params_size)) < 0)
        return e;
    c->params_out = c->params_bytes != 0;
    e = row.serve(c, &ctl->status);
    if (e < 0 || ctl->status != NV_OK)
        c->params_out = false;
    return e;
}

#include "group_control.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include "native_sched/nvidia/rm/table.h"

static int control(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                   uint32_t cmd, void *params, uint32_t bytes)
{
    int e = control_of_client(ops, d, group, group->handle, cmd, params, bytes);

    return e == -ENOENT ? -ESRCH : e;
}

int group_schedule(const struct driver_ops *ops, struct driver *d, const struct rm_target *group, bool enable)
{
    struct rm_tsg_schedule params = {.enable = enable};

    int bytes = group->rm ? rm_control_params(group->rm, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE)
                          : (int)sizeof(params);

    return control(ops, d, group, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &params, (uint32_t)bytes);
}

int group_set_timeslice(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                        uint64_t timeslice_us)
{
    struct rm_tsg_timeslice params = {.timeslice_us = timeslice_us};

    return control(ops, d, group, NVA06C_CTRL_CMD_SET_TIMESLICE, &params, sizeof(params));
}

int group_tsg_id(const struct driver_ops *ops, struct driver *d, const struct rm_target *group, uint32_t *id)
{
    struct rm_tsg_info params = {.tsg_id = 0};
    int e = control(ops, d, group, NVA06C_CTRL_CMD_GET_INFO, &params, sizeof(params));

    *id = params.tsg_id;
    return e;
}

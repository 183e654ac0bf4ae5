/* Scheduling controls of a channel group, made through the driver table on the open file of its client. 0, or
 * a negative error: an errno, or RM's status as rm_refusal() has it. -ESRCH: the group is gone. */
#ifndef MGPU_GROUP_CONTROL_H
#define MGPU_GROUP_CONTROL_H
#include "native_sched/nvidia/driver/rm_control.h"

/* Puts the group on its runlist, or takes it off: "removed from runlist" is all that NVIDIA's header says of
 * the second, and nothing of work that is on an engine (ctrla06fgpfifo.h). */
int group_schedule(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                   bool enable);
int group_set_timeslice(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                        uint64_t timeslice_us);
/* The id by which the hardware names the group. */
int group_tsg_id(const struct driver_ops *ops, struct driver *d, const struct rm_target *group, uint32_t *id);
#endif

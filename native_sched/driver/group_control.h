/* Scheduling controls of a channel group, carried out through the driver table on the open file of its client.
 * 0, or a negative error: an errno, or RM's status as rm_refusal() has it. -ESRCH: there is no such group any more. */
#ifndef MGPU_GROUP_CONTROL_H
#define MGPU_GROUP_CONTROL_H
#include "driver.h"
#include <errno.h>

/* RM's status as an error: below every errno. */
enum { RM_REFUSAL = 0x10000 };
static inline int rm_refusal(uint32_t status)
{
    return -(int)(RM_REFUSAL + (status & (RM_REFUSAL - 1)));
}
/* 0: it is an errno. */
static inline uint32_t rm_refused(int error)
{
    return error <= -RM_REFUSAL ? (uint32_t)(-error - RM_REFUSAL) : 0;
}
/* For those who know no statuses. */
static inline int rm_errno(int error)
{
    return rm_refused(error) ? -EIO : error;
}

/* RM_CONTROL on an object of the client that `of` names. -ESRCH: the client is gone; -ENOENT: something that the call
 * names is not there; RM refused otherwise; what execute() says. */
int control_of_client(const struct driver_ops *ops, struct driver *d, const struct rm_target *of,
                      uint32_t object, uint32_t cmd, void *params, uint32_t bytes);

/* Puts the group on its runlist, or takes it off: "removed from runlist" is all that NVIDIA's header says of the second, and
 * nothing of work that is on an engine (ctrla06fgpfifo.h). */
int group_schedule(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                   bool enable);
int group_set_timeslice(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                        uint64_t timeslice_us);
/* The id by which the hardware names the group. */
int group_tsg_id(const struct driver_ops *ops, struct driver *d, const struct rm_target *group, uint32_t *id);
#endif

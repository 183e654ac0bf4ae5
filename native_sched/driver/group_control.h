/* Scheduling controls of a channel group, carried out through the driver table on the open file of its client.
 * 0, or a negative errno; -ESRCH: there is no such group any more. */
#ifndef MGPU_GROUP_CONTROL_H
#define MGPU_GROUP_CONTROL_H
#include "driver.h"

/* RM_CONTROL on an object of the client that `of` names. -ESRCH: the client is gone; -ENOENT: something that the call
 * names is not there; -EIO: RM refused otherwise; what execute() says. */
int control_of_client(const struct driver_ops *ops, struct driver *d, const struct rm_target *of,
                      uint32_t object, uint32_t cmd, void *params, uint32_t bytes);

/* Returns when the group is on the runlist, or off the engine and off the runlist: from then on it runs 0 ns. */
int group_schedule(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                   bool enable);
int group_set_timeslice(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                        uint64_t timeslice_us);
/* The id by which the hardware names the group. */
int group_tsg_id(const struct driver_ops *ops, struct driver *d, const struct rm_target *group, uint32_t *id);
#endif

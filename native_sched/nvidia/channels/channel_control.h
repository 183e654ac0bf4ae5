/* DISABLE_CHANNELS, made through the driver table on the open file of the channels' client. It preempts them
 * and keeps them off until they are enabled, even if their groups are scheduled. No work is discarded. */
#ifndef MGPU_CHANNEL_CONTROL_H
#define MGPU_CHANNEL_CONTROL_H
#include "native_sched/nvidia/driver/driver.h"
#include "native_sched/nvidia/rm/rm_abi.h"

/* Channels of the client of `group`, at most RM_MAX_DISABLE; subdevice: one of that client, of the card they
 * are on. Returns when none of them is on an engine (ctrl2080fifo.h). -ESRCH: the client is gone, and they
 * with it; -EIO, or RM's status as rm_refusal() has it: one of them is not there, or RM refuses: the others
 * may run. None: RM says whether it knows the call. */
int channels_disable(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                     uint32_t subdevice, const uint32_t *channel, uint32_t channels, bool disable);
#endif

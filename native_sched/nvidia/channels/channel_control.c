#include "channel_control.h"
#include "group_control.h"

int channels_disable(const struct driver_ops *ops, struct driver *d, const struct rm_target *group,
                     uint32_t subdevice, const uint32_t *channel, uint32_t channels, bool disable)
{
    /* rewind_gp_put stays 0: it would discard work. The event stays NULL: one needs the kernel's
     * privilege. */
    struct rm_disable_channels params = {.disable = disable, .count = channels};
    int e;

    if (channels > RM_MAX_DISABLE)
        return -EINVAL;
    for (uint32_t i = 0; i < channels; i++) {
        params.client[i] = group->client;
        params.channel[i] = channel[i];
    }
    e = control_of_client(ops, d, group, subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, &params,
                          sizeof(params));
    return e == -ENOENT ? -EIO : e;
}

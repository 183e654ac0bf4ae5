#include "rm_control.h"
#include "native_sched/nvidia/rm/rm_abi.h"

int control_of_client(const struct driver_ops *ops, struct driver *d, const struct rm_target *of,
                      uint32_t object, uint32_t cmd, void *params, uint32_t bytes)
{
    struct rm_control ctl = {
        .client = of->client,
        .object = object,
        .cmd = cmd,
        .params_size = bytes,
    };
    struct driver_call call = {
        .file = &of->file,
        .cmd = RM_CMD(NV_ESC_RM_CONTROL, sizeof(ctl)),
        .outer = (uint8_t *)&ctl,
        .outer_bytes = sizeof(ctl),
        .params = params,
        .params_bytes = bytes,
        .reply_fd = -1,
    };
    int e = ops->execute(d, &call);

    if (e < 0)
        return e == -EBADF ? -ESRCH : e;
    switch (ctl.status) {
    case NV_OK:
        return 0;
    case NV_ERR_INVALID_CLIENT:
        return -ESRCH;
    case NV_ERR_INVALID_OBJECT_HANDLE:
    case NV_ERR_OBJECT_NOT_FOUND:
        return -ENOENT;
    default:
        return rm_refusal(ctl.status);
    }
}

#include "../abi/uvm_sizes.h"
#include "rmclient.h"
#include <errno.h>
#include <string.h>

static int restarted(int fd, uint32_t cmd, void *argument)
{
    int result;

    do
        result = ioctl(fd, cmd, argument);
    while (result < 0 && (errno == EINTR || errno == EAGAIN));
    return result < 0 ? -errno : 0;
}

int rmc_ioctl(int fd, uint32_t nr, void *argument, uint32_t bytes)
{
    return restarted(fd, RM_CMD(nr, bytes), argument);
}

uint32_t rmc_uvm(const struct rmc *rm, int fd, uint32_t cmd, void *params)
{
    uint32_t status;

    if (restarted(fd, cmd, params))
        return RMC_STATUS_IOCTL_FAILED;
    memcpy(&status, (const char *)params + uvm_size_of(&rm->table, cmd).status_at, sizeof status);
    return status;
}

static uint32_t call(int fd, uint32_t nr, void *outer, uint32_t bytes, const uint32_t *status)
{
    return rmc_ioctl(fd, nr, outer, bytes) ? RMC_STATUS_IOCTL_FAILED : *status;
}

static uint32_t at_most(uint32_t bytes, int taken)
{
    return taken > 0 && (uint32_t)taken < bytes ? (uint32_t)taken : bytes;
}

uint32_t rmc_alloc(const struct rmc *rm, uint32_t parent, uint32_t *handle, uint32_t class_id, void *params,
                   uint32_t params_bytes)
{
    struct rm_alloc alloc = {
        .root = rm->client,
        .parent = parent,
        .handle = *handle,
        .class_id = class_id,
        .params = (uintptr_t)params,
        .params_size = at_most(params_bytes, rm_class_params(&rm->table, class_id)),
    };
    uint32_t status = call(rm->ctl_fd, NV_ESC_RM_ALLOC, &alloc, sizeof alloc, &alloc.status);

    if (!status)
        *handle = alloc.handle;
    return status;
}

uint32_t rmc_free(const struct rmc *rm, uint32_t handle)
{
    struct rm_free request = {.root = rm->client, .handle = handle};

    return call(rm->ctl_fd, NV_ESC_RM_FREE, &request, sizeof request, &request.status);
}

uint32_t rmc_control(const struct rmc *rm, uint32_t object, uint32_t cmd, void *params, uint32_t params_bytes)
{
    struct rm_control ctl = {
        .client = rm->client,
        .object = object,
        .cmd = cmd,
        .params = (uintptr_t)params,
        .params_size = at_most(params_bytes, rm_control_params(&rm->table, cmd)),
    };

    return call(rm->ctl_fd, NV_ESC_RM_CONTROL, &ctl, sizeof ctl, &ctl.status);
}

uint32_t rmc_memory_kib(const struct rmc *rm, const struct rmc_card *card, const uint32_t *indices,
                        uint32_t *kib, uint32_t count)
{
    struct rm_fb_info info = {.count = count};
    uint32_t status;

    for (uint32_t i = 0; i < count; i++)
        info.entry[i].index = indices[i];
    status = rmc_control(rm, card->subdevice, NV2080_CTRL_CMD_FB_GET_INFO_V2, &info, sizeof info);
    for (uint32_t i = 0; i < count && !status; i++)
        kib[i] = info.entry[i].data;
    return status;
}

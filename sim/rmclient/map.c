#include "rmclient.h"
#include <unistd.h>

uint32_t rmc_map(const struct rmc *rm, const struct rmc_card *card, uint32_t parent, uint32_t handle,
                 struct rmc_mapping *mapping)
{
    struct rm_map_memory map = {
        .client = rm->client,
        .device = parent,
        .memory = handle,
        .length = mapping->bytes,
    };
    uint32_t status;

    map.fd = mapping->host ? rmc_open_path("/dev/nvidiactl") : rmc_open_node(rm, card);
    if (map.fd < 0)
        return RMC_STATUS_IOCTL_FAILED;
    status = rmc_ioctl(rm->ctl_fd, NV_ESC_RM_MAP_MEMORY, &map, sizeof map) ? RMC_STATUS_IOCTL_FAILED
                                                                           : map.status;
    if (status) {
        close(map.fd);
        return status;
    }
    mapping->fd = map.fd;
    mapping->offset = map.linear;
    return NV_OK;
}

#include "../../native_sched/nvidia/rm/peers_abi.h"
#include "../abi/control_sizes.h"
#include "rmclient.h"
#include <string.h>

enum { V2_MAX = 8348, LINKS_MAX_BYTES = 16384 };

uint32_t rmc_peers(const struct rmc *rm, const struct rmc_card *one, const struct rmc_card *other,
                   uint32_t *caps)
{
    enum { TABLES = 5 };
    struct {
        struct rm_p2p_matrix of;
        uint32_t caps[TABLES * RM_P2P_GROUP * RM_P2P_GROUP];
    } params = {.of = {.a = 1, .b = 1, .gpu_id_a = {one->gpu_id}, .gpu_id_b = {other->gpu_id}}};
    uint32_t status = rmc_control(rm, rm->client, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX, &params,
                                  sizeof params);

    *caps = status ? 0 : params.caps[0];
    return status;
}

uint32_t rmc_peer_statuses(const struct rmc *rm, const struct rmc_card *one, const struct rmc_card *other,
                           uint8_t statuses[RMC_PEER_STATUSES])
{
    union {
        struct rm_p2p_caps of;
        uint8_t all[V2_MAX];
    } params = {.of = {.gpu_id = {one->gpu_id, other->gpu_id}, .count = 2}};
    uint32_t status = rmc_control(rm, rm->client, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2, &params,
                                  control_bytes(&rm->table, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2));

    memcpy(statuses, params.of.status, RMC_PEER_STATUSES);
    return status;
}

uint32_t rmc_link_version(const struct rmc *rm, const struct rmc_card *card, uint32_t *version)
{
    uint32_t params[12] = {0};
    uint32_t status = rmc_control(rm, card->subdevice, NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS, params,
                                  control_bytes(&rm->table, NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS));

    *version = params[1] >> 8 & 0xff;
    return status;
}

/* Links come one behind the other, as long as the driver's version has them. */
uint32_t rmc_link(const struct rmc *rm, const struct rmc_card *card, uint32_t number, struct rmc_link *link)
{
    static uint8_t params[LINKS_MAX_BYTES];
    const struct rm_table *table = &rm->table;
    uint32_t bytes = rm_bytes(table, RM_BYTES_NV2080_CTRL_NVLINK_LINK_STATUS_INFO);
    size_t first = table->version < RM_VERSION(580, 65) ? offsetof(struct rm_links_v535, link)
                                                        : offsetof(struct rm_links, link);
    size_t remote = table->version < RM_VERSION(555, 42) ? offsetof(struct rm_link_v535, remote)
                                                         : offsetof(struct rm_link, remote);
    const uint8_t *at = params + first + (size_t)number * bytes;
    struct rm_link_device there;
    uint32_t status;

    *link = (struct rmc_link){.connected = false};
    memset(params, 0, sizeof params);
    status = rmc_control(rm, card->subdevice, NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS, params,
                         control_bytes(&rm->table, NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS));
    if (status || first + (size_t)(number + 1) * bytes > sizeof params)
        return status;
    memcpy(&there, at + remote, sizeof there);
    link->connected = at[offsetof(struct rm_link, connected)] && there.type != RM_LINK_TO_NOTHING;
    link->to_gpu = there.type == RM_LINK_TO_GPU;
    link->domain = there.domain;
    link->bus = there.bus;
    link->slot = there.device;
    return NV_OK;
}

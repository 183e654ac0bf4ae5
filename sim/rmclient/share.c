#include "../../native_sched/nvidia/rm/export_abi.h"
#include "rmclient.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

uint32_t rmc_share(const struct rmc *rm, uint32_t handle)
{
    struct rm_share share = {
        .client = rm->client,
        .handle = handle,
        .policy = {.access_mask = RM_SHARE_ACCESS_DUP, .type = RM_SHARE_TYPE_ALL, .action = RM_SHARE_COMPOSE},
    };

    return rmc_ioctl(rm->ctl_fd, NV_ESC_RM_SHARE, &share, sizeof share) ? RMC_STATUS_IOCTL_FAILED
                                                                        : share.status;
}

uint32_t rmc_dup(const struct rmc *rm, const struct rmc_card *card, uint32_t *handle, uint32_t client,
                 uint32_t source)
{
    struct rm_dup dup = {
        .client = rm->client,
        .parent = card->device,
        .source_client = client,
        .source_handle = source,
    };

    if (rmc_ioctl(rm->ctl_fd, NV_ESC_RM_DUP_OBJECT, &dup, sizeof dup))
        return RMC_STATUS_IOCTL_FAILED;
    *handle = dup.handle;
    return dup.status;
}

/* A file of its own for each export: a program that has it has the memory. */
uint32_t rmc_export(const struct rmc *rm, const struct rmc_card *card, uint32_t handle, uint64_t bytes,
                    int *fd)
{
    struct rm_export_objects export = {.device = card->device, .max = 1, .object = {handle}, .count = 1};
    uint32_t status;

    memcpy(export.metadata, &bytes, sizeof bytes);
    export.fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    if (export.fd < 0)
        return RMC_STATUS_IOCTL_FAILED;
    status = rmc_control(rm, rm->client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, &export,
                         sizeof export);
    if (status)
        close(export.fd);
    else
        *fd = export.fd;
    return status;
}

/* Of which device it is, and what its maker says of it. From 545.23 on a word more comes before that. */
static uint32_t ask_about(const struct rmc *rm, int fd, uint32_t *instance, uint64_t *bytes)
{
    union {
        struct rm_export_info info;
        uint8_t at[80];
    } reported = {.info.fd = fd};
    uint32_t size = (uint32_t)rm_control_params(&rm->table, NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO);
    uint32_t status = rmc_control(rm, rm->client, NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, &reported,
                                  sizeof reported);
    size_t metadata = size < sizeof reported ? 10 : 14;

    *instance = reported.info.device_instance;
    memcpy(bytes, reported.at + metadata, sizeof *bytes);
    return status;
}

uint32_t rmc_import(const struct rmc *rm, int fd, const struct rmc_card **card, uint32_t *handle,
                    uint64_t *bytes)
{
    struct rm_import_objects import = {.fd = fd, .count = 1};
    uint32_t instance, status = ask_about(rm, fd, &instance, bytes);

    *card = NULL;
    for (uint32_t i = 0; i < rm->card_count && !status; i++)
        if (rm->cards[i].instance == instance)
            *card = &rm->cards[i];
    if (!status && !*card)
        status = NV_ERR_INVALID_DEVICE;
    if (status)
        return status;
    import.parent = (*card)->device;
    status = rmc_control(rm, rm->client, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, &import,
                         sizeof import);
    *handle = import.object[0];
    return status ? status : import.type[0] == RM_IMPORT_TYPE_VIDEO ? NV_OK : NV_ERR_NOT_SUPPORTED;
}

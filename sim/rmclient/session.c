#include "../../base/memory_block.h"
#include "rmclient.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSION_CMD_QUERY = '2' };

int rmc_open_path(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static void card_close(struct rmc_card *card)
{
    if (card->node_fd >= 0)
        close(card->node_fd);
    card->node_fd = -1;
}

int rmc_open_node(const struct rmc *rm, const struct rmc_card *card)
{
    struct rm_register_fd registration = {.ctl_fd = rm->ctl_fd};
    char path[32];
    int fd, error;

    snprintf(path, sizeof path, "/dev/nvidia%u", card->info.minor);
    fd = rmc_open_path(path);
    if (fd < 0)
        return fd;
    error = rmc_ioctl(fd, NV_ESC_REGISTER_FD, &registration, sizeof registration);
    if (!error)
        return fd;
    close(fd);
    return error;
}

static uint32_t card_open_objects(const struct rmc *rm, struct rmc_card *card)
{
    struct rm_device device = {.id = card->instance};
    struct rm_subdevice subdevice = {0};
    uint32_t status = rmc_alloc(rm, rm->client, &card->device, NV01_DEVICE_0, &device, sizeof device);

    if (!status)
        status = rmc_alloc(rm, card->device, &card->subdevice, NV20_SUBDEVICE_0, &subdevice,
                           sizeof subdevice);
    return status;
}

static uint32_t card_describe(const struct rmc *rm, struct rmc_card *card)
{
    struct rm_name name = {0};
    struct rm_gid gid = {0};
    uint32_t status = rmc_control(rm, card->subdevice, NV2080_CTRL_CMD_GPU_GET_NAME_STRING, &name,
                                  rm_bytes(&rm->table, RM_BYTES_NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS));

    if (!status)
        status = rmc_control(rm, card->subdevice, NV2080_CTRL_CMD_GPU_GET_GID_INFO, &gid, sizeof gid);
    if (!status)
        status = rmc_control(rm, card->subdevice, NV2080_CTRL_CMD_MC_GET_ARCH_INFO, &card->arch,
                             sizeof card->arch);
    if (!status)
        status = rmc_control(rm, card->subdevice, NV2080_CTRL_CMD_BUS_GET_PCI_INFO, &card->pci,
                             sizeof card->pci);
    snprintf(card->name, sizeof card->name, "%.63s", name.ascii);
    snprintf(card->uuid, sizeof card->uuid, "%.63s", (const char *)gid.data);
    snprintf(card->bus_id, sizeof card->bus_id, "%08X:%02X:%02X.%X", card->info.pci_domain,
             card->info.pci_bus, card->info.pci_slot, card->info.pci_function);
    card->model = card_profile_by_pci(card->info.pci_device);
    return status;
}

void rmc_uuid(const struct rmc_card *card, uint8_t uuid[16])
{
    const char *text = card->uuid + strlen("GPU-");

    for (int i = 0; i < 16; i++, text += 2) {
        unsigned int byte = 0;

        text += *text == '-';
        sscanf(text, "%2x", &byte);
        uuid[i] = (uint8_t)byte;
    }
}

/* A card that cannot be opened is left out, as if it were not there: its node was not given to us. */
static bool card_open(const struct rmc *rm, struct rmc_card *card)
{
    card->node_fd = rmc_open_node(rm, card);
    if (card->node_fd >= 0 && !card_open_objects(rm, card) && !card_describe(rm, card) && card->model)
        return true;
    if (card->device)
        rmc_free(rm, card->device);
    card_close(card);
    return false;
}

static const struct rm_card_info *info_of(const struct rm_card_info *infos, uint32_t gpu_id)
{
    for (uint32_t i = 0; i < RM_MAX_CARDS; i++)
        if (infos[i].valid && infos[i].gpu_id == gpu_id)
            return &infos[i];
    return NULL;
}

static int cards_open(struct rmc *rm)
{
    struct rm_card_info infos[RM_MAX_CARDS] = {0};
    struct rm_gpu_ids ids = {0};
    int error = rmc_ioctl(rm->ctl_fd, NV_ESC_CARD_INFO, infos, sizeof infos);

    if (error)
        return error;
    if (rmc_control(rm, rm->client, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, &ids, sizeof ids))
        return -EIO;
    for (uint32_t i = 0; i < RM_MAX_CARDS && ids.id[i] != 0xffffffffu; i++) {
        struct rmc_card *card = &rm->cards[rm->card_count];
        struct rm_id_info id_info = {.gpu_id = ids.id[i]};
        const struct rm_card_info *info = info_of(infos, ids.id[i]);

        if (!info || rmc_control(rm, rm->client, NV0000_CTRL_CMD_GPU_GET_ID_INFO, &id_info, sizeof id_info))
            continue;
        *card = (struct rmc_card){.gpu_id = ids.id[i], .instance = id_info.device_instance, .info = *info};
        card->node_fd = -1;
        rm->card_count += card_open(rm, card);
    }
    return 0;
}

static int driver_open(struct rmc *rm)
{
    struct rm_check_version version = {.cmd = VERSION_CMD_QUERY};
    struct rm_sys_params params = {.memblock_bytes = memory_block_bytes()};
    int error;

    rm->ctl_fd = rmc_open_path("/dev/nvidiactl");
    if (rm->ctl_fd < 0)
        return rm->ctl_fd;
    error = rmc_ioctl(rm->ctl_fd, NV_ESC_CHECK_VERSION_STR, &version, sizeof version);
    if (!error)
        error = rmc_ioctl(rm->ctl_fd, NV_ESC_SYS_PARAMS, &params, sizeof params);
    if (error)
        return error;
    snprintf(rm->driver_version, sizeof rm->driver_version, "%.63s", version.version);
    if (rm_table_pick(rm->driver_version, &rm->table))
        return -EPROTO;
    if (rmc_alloc(rm, 0, &rm->client, NV01_ROOT_CLIENT, NULL, 0))
        return -EIO;
    return cards_open(rm);
}

int rmc_open(struct rmc *rm)
{
    int error;

    *rm = (struct rmc){.pid = getpid(), .ctl_fd = -1};
    error = driver_open(rm);
    if (error)
        rmc_close(rm);
    return error;
}

void rmc_close(struct rmc *rm)
{
    if (rm->pid == getpid() && rm->client)
        rmc_free(rm, rm->client);
    for (uint32_t i = 0; i < rm->card_count; i++)
        card_close(&rm->cards[i]);
    if (rm->ctl_fd >= 0)
        close(rm->ctl_fd);
    *rm = (struct rmc){.ctl_fd = -1};
}

/* Names clients and cards that are others', wherever RM takes a name and does not ask whose it is: events
 * told in a client's name, a device that shares its address space, cards to open and to ask peers of, lists
 * of cards; and a channel of its own to be reset. Prints how many of these calls were answered with success.
 */
#include "../../../native_sched/nvidia/rm/peers_abi.h"
#include "../gpu.h"

enum { FIRST_CLIENT = 0xc1d00000, CLIENTS = 1024, BUSES = 256, SLOTS = 64, GROUP = 0x100 };

static unsigned int of_client(const struct gpu *g, int bare_fd, uint32_t bare, uint32_t client)
{
    struct rm_os_event told = {.client = client, .device = DEVICE, .fd = (uint32_t)g->ctl};
    struct rm_event event = {.client = client, .source = client, .data = (uint32_t)g->ctl};
    struct rm_device share = {.client_share = client}, target = {.target_client = client};
    unsigned int good = 0;

    good += !ioctl(g->ctl, RM_CMD(NV_ESC_ALLOC_OS_EVENT, sizeof(told)), &told) && !told.status;
    told.status = 0xdead;
    good += !ioctl(g->ctl, RM_CMD(NV_ESC_FREE_OS_EVENT, sizeof(told)), &told) && !told.status;
    good += rm_alloc(g->ctl, g->client, SUBDEVICE, 0x7777, NV01_EVENT_OS_EVENT, &event, sizeof(event)) ==
            NV_OK;
    good += rm_alloc(bare_fd, bare, bare, DEVICE, NV01_DEVICE_0, &share, sizeof(share)) == NV_OK;
    good += rm_alloc(bare_fd, bare, bare, DEVICE, NV01_DEVICE_0, &target, sizeof(target)) == NV_OK;
    return good;
}

static unsigned int of_card(const struct gpu *g, uint32_t own, uint32_t gpu_id)
{
    static union {
        struct rm_p2p_caps caps;
        uint8_t bytes[8348];
    } peers;
    uint32_t attach[2] = {gpu_id};
    int fd = open_node("/dev/nvidiactl");
    unsigned int good = !ioctl(fd, RM_CMD(NV_ESC_ATTACH_GPUS_TO_FD, sizeof(attach)), attach);

    close(fd);
    peers.caps.gpu_id[0] = own;
    peers.caps.gpu_id[1] = gpu_id;
    peers.caps.count = 2;
    good += rm_control(g->ctl, g->client, g->client, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2, &peers,
                       sizeof(peers)) == NV_OK;
    return good;
}

/* How many cards each list has beside the one that is granted; a list without that one counts too. */
static unsigned int in_lists(const struct gpu *g)
{
    struct rm_gpu_ids ids[3] = {0};
    struct rm_device_ids devices = {0};
    unsigned int wrong = 0;

    must(rm_control(g->ctl, g->client, g->client, NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS, &devices,
                    sizeof(devices)) == NV_OK,
         "device ids");
    wrong += __builtin_popcount(devices.mask) != 1;
    must(rm_control(g->ctl, g->client, g->client, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, ids,
                    sizeof(ids[0])) == NV_OK,
         "attached ids");
    wrong += ids->id[0] == ~0u || ids->id[1] != ~0u;
    return wrong;
}

int main(void)
{
    static struct rm_card_info cards[RM_MAX_CARDS];
    uint32_t reset[4] = {RM_ENGINE_GRAPHICS}, bare = 0;
    unsigned int good = 0;
    struct gpu g;
    struct work w;
    int bare_fd = open_node("/dev/nvidiactl");

    gpu_open(&g);
    make_client(bare_fd, &bare);
    must(!ioctl(g.ctl, RM_CMD(NV_ESC_CARD_INFO, sizeof(cards)), cards), "cards");
    for (uint32_t client = FIRST_CLIENT; client < FIRST_CLIENT + CLIENTS; client++)
        if (client != g.client && client != bare)
            good += of_client(&g, bare_fd, bare, client);
    /* RM makes them of the bus and the slot. */
    for (uint32_t id = 1; id < BUSES << 8; id = id < SLOTS ? id + 1 : ((id >> 8) + 1) << 8)
        if (id != cards[0].gpu_id)
            good += of_card(&g, cards[0].gpu_id, id);
    good += in_lists(&g);
    must(work_make(&g, &w, GROUP) == NV_OK, "group");
    good += rm_control(g.ctl, g.client, GROUP + 2, NV906F_CTRL_CMD_RESET_CHANNEL, reset, sizeof(reset)) ==
            NV_OK;
    say("%u", good);
    hold();
}

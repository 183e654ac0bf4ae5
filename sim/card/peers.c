/* Two cards of a kind reach each other's memory: over NVLink where their chip has it, of which one link goes
 * to each other card of the kind, else over the bus by RM's mailboxes (CliGetSystemP2pCaps() in
 * client_resource.c, p2papiConstruct_IMPL() in p2p_api.c of NVIDIA's open-gpu-kernel-modules). No card
 * reaches itself. */
#include "../../native_sched/nvidia/rm/peers_abi.h"
#include "rm.h"
#include <string.h>

enum { WRITES = 1, READS = 2, BY_MAILBOX = 4, BY_NVLINK = 8, ATOMICS = 16, BY_BUS = 64 };
enum { LINK_IS_SUPPORTED = 1, LINK_REACHES_PEERS = 2, LINK_HAS_ADDRESS = 1 };
enum { LINKS_OF_2_0 = 2, LINKS_OF_3_0 = 5, LINKS_OF_4_0 = 7, LINKS_OF_5_0 = 8 }; /* ctrl2080nvlink.h */
static const uint32_t over_links = READS | WRITES | BY_NVLINK | ATOMICS;
static const uint32_t over_bus = READS | WRITES | BY_MAILBOX | BY_BUS;

/* 0: its chip has none. */
static uint32_t links_version(const struct sim_card *card)
{
    switch (card->profile->chip) {
    case CHIP_GV100:
        return LINKS_OF_2_0;
    case CHIP_GA100:
        return LINKS_OF_3_0;
    case CHIP_GH100:
        return LINKS_OF_4_0;
    case CHIP_GB100:
        return LINKS_OF_5_0;
    default:
        return 0;
    }
}

static bool has_links(const struct sim_card *card)
{
    return links_version(card) > 0;
}

/* Of each with each other; a card that does not exist is nobody's peer. */
static uint32_t caps_among(struct rm *rm, const uint32_t *gpu_id, uint32_t count, uint32_t *caps)
{
    const struct sim_card *first = card_by_gpu_id(rm, gpu_id[0]), *card;
    bool several = false, peers = true;

    for (uint32_t i = 0; i < count; i++) {
        if (!(card = card_by_gpu_id(rm, gpu_id[i])))
            return NV_ERR_INVALID_ARGUMENT;
        several |= card != first;
        peers &= card == first || cards_are_peers(first, card);
    }
    *caps = !several || !peers ? 0 : has_links(first) ? over_links : over_bus;
    return NV_OK;
}

uint32_t p2p_caps(const struct rm_request *request)
{
    static const uint32_t bit_of[] = {READS, WRITES, BY_NVLINK, ATOMICS, BY_MAILBOX, 0, BY_BUS, 0, 0};
    struct rm_p2p_caps *params = request->params;
    uint32_t status;

    if (!params->count || params->count > RM_MAX_CARDS)
        return NV_ERR_INVALID_ARGUMENT;
    if ((status = caps_among(request->rm, params->gpu_id, params->count, &params->caps)))
        return status;
    params->read_engines = params->write_engines = 0;
    for (size_t i = 0; i < sizeof bit_of / sizeof *bit_of; i++)
        params->status[i] = params->caps & bit_of[i] ? 0 : RM_P2P_NOT_SUPPORTED;
    memset((uint8_t *)request->params + RM_P2P_LISTS_AT, RM_P2P_NO_PEER,
           request->params_bytes - RM_P2P_LISTS_AT);
    return NV_OK;
}

/* Of each of one group with each of the other, or of the one with itself; RM's own answers follow in rows. */
uint32_t p2p_matrix(const struct rm_request *request)
{
    const struct rm_p2p_matrix *params = request->params;
    uint32_t *row = (uint32_t *)(void *)((uint8_t *)request->params + sizeof *params), status;
    const uint32_t *b = params->b ? params->gpu_id_b : params->gpu_id_a;
    uint32_t count = params->b ? params->b : params->a;

    if (!params->a || params->a > RM_P2P_GROUP || params->b > RM_P2P_GROUP)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < params->a; i++, row += RM_P2P_GROUP)
        for (uint32_t j = 0; j < count; j++) {
            uint32_t pair[] = {params->gpu_id_a[i], b[j]};

            if ((status = caps_among(request->rm, pair, 2, &row[j])))
                return status;
        }
    return NV_OK;
}

/* The card that the link goes to; NULL: it goes nowhere. */
static const struct sim_card *other_end(const struct rm *rm, const struct sim_card *card, uint32_t link)
{
    for (uint32_t i = 0; has_links(card) && i < rm->card_count; i++)
        if (cards_are_peers(card, &rm->cards[i]) && !link--)
            return &rm->cards[i];
    return NULL;
}

static uint32_t links_of(const struct rm *rm, const struct sim_card *card)
{
    uint32_t mask = 0, link = 0;

    for (; other_end(rm, card, link); link++)
        mask |= 1u << link;
    return mask;
}

uint32_t link_caps(const struct rm_request *request)
{
    enum { DISCOVERED = 2, ENABLED = 3, CAPS = 0, VERSIONS = 1 };
    uint32_t *params = request->params, mask = links_of(request->rm, request->card);

    memset(params, 0, request->params_bytes);
    if (mask) {
        params[CAPS] = LINK_IS_SUPPORTED | LINK_REACHES_PEERS;
        params[VERSIONS] = links_version(request->card) | links_version(request->card) << 8;
    }
    params[DISCOVERED] = params[ENABLED] = mask;
    return NV_OK;
}

/* In the driver's version's layout. */
uint32_t link_status(const struct rm_request *request)
{
    const struct rm_table *table = &request->rm->table;
    uint32_t bytes = rm_bytes(table, RM_BYTES_NV2080_CTRL_NVLINK_LINK_STATUS_INFO);
    uint32_t at = table->version < RM_VERSION(580, 65) ? offsetof(struct rm_links_v535, link)
                                                       : offsetof(struct rm_links, link);
    uint32_t remote = table->version < RM_VERSION(555, 42) ? offsetof(struct rm_link_v535, remote)
                                                           : offsetof(struct rm_link, remote);
    const struct sim_card *peer;

    memset(request->params, 0, request->params_bytes);
    *(uint32_t *)request->params = links_of(request->rm, request->card);
    for (uint32_t i = 0;
         at + bytes <= request->params_bytes && (peer = other_end(request->rm, request->card, i));
         i++, at += bytes) {
        struct rm_link *link = (void *)((uint8_t *)request->params + at);

        link->connected = 1;
        *(struct rm_link_device *)(void *)((uint8_t *)link + remote) = (struct rm_link_device){
            .flags = LINK_HAS_ADDRESS,
            .domain = peer->gpu_id >> 16,
            .bus = peer->gpu_id >> 8 & 0xff,
            .device = peer->gpu_id & 0xff,
            .type = RM_LINK_TO_GPU,
        };
    }
    return NV_OK;
}

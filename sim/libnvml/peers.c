/* What cards are to each other, and their links, as RM tells. */
#include "nvml.h"
#include <stdio.h>

/* Where the ways of two cards meet: all are below one bridge of the host's. */
enum { TOPOLOGY_INTERNAL = 0, TOPOLOGY_HOSTBRIDGE = 30, TOPOLOGY_SYSTEM = 50 };
enum { LINKS_MAX = 18, CAPABILITIES = 6, TO_GPU = 0, TO_UNKNOWN = 0xff };

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, unsigned int index, int *status)
{
    uint8_t statuses[RMC_PEER_STATUSES];
    const struct rmc_card *other;
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    other = card_of(entry.rm, peer);
    if (!status || !other || index >= RMC_PEER_STATUSES)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = from_rm(rmc_peer_statuses(entry.rm, entry.card, other, statuses));
    if (!result)
        *status = statuses[index];
    return result;
}

static unsigned int level_of(const struct rmc_card *one, const struct rmc_card *other)
{
    return one == other ? TOPOLOGY_INTERNAL : TOPOLOGY_HOSTBRIDGE;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t peer, unsigned int *level)
{
    const struct rmc_card *other;
    ENTER(entry, enter_device(device));

    other = card_of(entry.rm, peer);
    if (!level || !other)
        return NVML_ERROR_INVALID_ARGUMENT;
    *level = level_of(entry.card, other);
    return NVML_SUCCESS;
}

/* Those no further away than that. */
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned int level, unsigned int *count,
                                              nvmlDevice_t *found)
{
    unsigned int room, there = 0;
    ENTER(entry, enter_device(device));

    if (!count || level > TOPOLOGY_SYSTEM || (*count && !found))
        return NVML_ERROR_INVALID_ARGUMENT;
    room = *count;
    for (uint32_t i = 0; i < entry.rm->card_count; i++) {
        const struct rmc_card *card = &entry.rm->cards[i];

        if (card == entry.card || level_of(entry.card, card) > level)
            continue;
        if (there < room)
            found[there] = handle_of(&entry, i);
        there++;
    }
    *count = room && room < there ? room : there;
    return NVML_SUCCESS;
}

/* NVML_ERROR_NOT_SUPPORTED of a card without links. */
static nvmlReturn_t read_link(const struct entry *entry, unsigned int number, struct rmc_link *link,
                              uint32_t *version)
{
    uint32_t status = rmc_link_version(entry->rm, entry->card, version);

    if (!status && !*version)
        return NVML_ERROR_NOT_SUPPORTED;
    if (number >= LINKS_MAX)
        return NVML_ERROR_INVALID_ARGUMENT;
    return from_rm(status ? status : rmc_link(entry->rm, entry->card, number, link));
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int number, unsigned int *active)
{
    struct rmc_link link;
    uint32_t version;
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    result = active ? read_link(&entry, number, &link, &version) : NVML_ERROR_INVALID_ARGUMENT;
    if (!result)
        *active = link.connected;
    return result;
}

/* RM counts 2.2 and what comes after it one further. */
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int number, unsigned int *version)
{
    enum { RMS_2_2 = 4 };
    struct rmc_link link;
    uint32_t rms;
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    result = version ? read_link(&entry, number, &link, &rms) : NVML_ERROR_INVALID_ARGUMENT;
    if (!result)
        *version = rms < RMS_2_2 ? rms : rms - 1;
    return result;
}

/* Of peers, of the host's memory, and atomic in both; of other kinds of links. */
nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int number, unsigned int capability,
                                           unsigned int *has)
{
    enum { PEERS = 0, PEERS_ATOMICS = 2 };
    struct rmc_link link;
    uint32_t version;
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    if (!has || capability >= CAPABILITIES)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = read_link(&entry, number, &link, &version);
    if (!result)
        *has = link.connected && (capability == PEERS || capability == PEERS_ATOMICS);
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int number, nvmlPciInfo_t *pci)
{
    struct rmc_link link;
    uint32_t version;
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    result = pci ? read_link(&entry, number, &link, &version) : NVML_ERROR_INVALID_ARGUMENT;
    if (result)
        return result;
    if (!link.connected)
        return NVML_ERROR_NOT_SUPPORTED;
    *pci = (nvmlPciInfo_t){.domain = link.domain, .bus = link.bus, .device = link.slot};
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", link.domain, link.bus, link.slot);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%.15s", pci->busId + 4);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int number, unsigned int *type)
{
    struct rmc_link link;
    uint32_t version;
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    result = type ? read_link(&entry, number, &link, &version) : NVML_ERROR_INVALID_ARGUMENT;
    if (!result)
        *type = link.connected && link.to_gpu ? TO_GPU : TO_UNKNOWN;
    return result;
}

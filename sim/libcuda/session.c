#include "cuda.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct rmc session = {.ctl_fd = -1};
static struct rmc left; /* as it was before its return to the driver, perhaps to other cards */
static struct device devices[RM_MAX_CARDS];
static unsigned int devices_visible;

static CUresult from_errno(int error)
{
    switch (error) {
    case 0:
        return CUDA_SUCCESS;
    case -EACCES:
    case -EPERM:
        return CUDA_ERROR_OPERATING_SYSTEM;
    default:
        return CUDA_ERROR_NO_DEVICE;
    }
}

CUresult session_open(void)
{
    uint32_t order[RM_MAX_CARDS];
    CUresult result;

    if (session.pid == getpid())
        return CUDA_SUCCESS;
    if (session.pid)
        rmc_close(&session);
    result = from_errno(rmc_open(&session));
    if (result)
        return result;
    devices_visible = visible_cards(&session, order);
    for (unsigned int i = 0; i < devices_visible; i++)
        devices[i] = (struct device){.card = &session.cards[order[i]]};
    if (devices_visible)
        return CUDA_SUCCESS;
    rmc_close(&session);
    return CUDA_ERROR_NO_DEVICE;
}

const struct rmc *session_rm(void)
{
    return &session;
}

void session_leave(void)
{
    struct rmc left = session;

    rmc_close(&session);
    left.ctl_fd = -1;
    left.client = 0;
    for (uint32_t i = 0; i < left.card_count; i++) {
        left.cards[i].node_fd = -1;
        left.cards[i].device = left.cards[i].subdevice = 0;
    }
    session = left;
}

static bool names_card(const CUuuid *uuid, const struct rmc_card *card)
{
    uint8_t bytes[sizeof uuid->bytes];

    rmc_uuid(card, bytes);
    return !memcmp(bytes, uuid->bytes, sizeof bytes);
}

/* The index among the cards of `there` of the one to stand for `card`; card_count: there is none. */
static uint32_t successor(const struct rmc *there, const struct rmc_card *card,
                          const CUcheckpointGpuPair *pairs, unsigned int count)
{
    CUuuid wanted;
    unsigned int pair = 0;
    uint32_t i = 0;

    rmc_uuid(card, (uint8_t *)wanted.bytes);
    while (pair < count && memcmp(&pairs[pair].oldUuid, &wanted, sizeof wanted))
        pair++;
    if (count && pair == count)
        return there->card_count; /* pairs name every card that was left */
    if (count)
        wanted = pairs[pair].newUuid;
    while (i < there->card_count && !names_card(&wanted, &there->cards[i]))
        i++;
    return i;
}

/* Moves the successor of each card to its place. */
static CUresult arrange(struct rmc *there, const CUcheckpointGpuPair *pairs, unsigned int count)
{
    CUresult missing = count ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NO_DEVICE;

    for (uint32_t i = 0; i < session.card_count; i++) {
        uint32_t from = successor(there, &session.cards[i], pairs, count);
        struct rmc_card card;

        if (from == there->card_count || from < i || there->cards[from].model != session.cards[i].model)
            return missing;
        card = there->cards[i];
        there->cards[i] = there->cards[from];
        there->cards[from] = card;
    }
    return CUDA_SUCCESS;
}

CUresult session_return(const CUcheckpointGpuPair *pairs, unsigned int count)
{
    struct rmc there;
    CUresult result = from_errno(rmc_open(&there));

    if (result)
        return result;
    result = arrange(&there, pairs, count);
    if (result) {
        rmc_close(&there);
    } else {
        left = session;
        session = there;
    }
    return result;
}

void session_stay(void)
{
    session = left;
}

bool session_inherited(void)
{
    return session.pid && session.pid != getpid();
}

void leave(struct entry *entry)
{
    if (!entry->rm)
        return;
    entry->rm = NULL;
    rmc_unlock();
    gate_leave();
}

struct entry enter(void)
{
    gate_pass();
    rmc_lock();
    if (session.pid == getpid())
        return (struct entry){.rm = &session};
    rmc_unlock();
    gate_leave();
    return (struct entry){.error = CUDA_ERROR_NOT_INITIALIZED};
}

struct entry enter_device(CUdevice device)
{
    struct entry entry = enter();

    if (entry.error)
        return entry;
    entry.device = device_at(device);
    if (entry.device)
        return entry;
    leave(&entry);
    return (struct entry){.error = CUDA_ERROR_INVALID_DEVICE};
}

CUresult from_rm(uint32_t status)
{
    switch (status) {
    case NV_OK:
        return CUDA_SUCCESS;
    case NV_ERR_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case NV_ERR_INVALID_PARAMETER:
        return CUDA_ERROR_INVALID_VALUE;
    case NV_ERR_INVALID_DEVICE:
        return CUDA_ERROR_INVALID_DEVICE;
    case NV_ERR_INSUFFICIENT_PERMISSIONS:
        return CUDA_ERROR_NOT_PERMITTED;
    case NV_ERR_NOT_SUPPORTED:
        return CUDA_ERROR_NOT_SUPPORTED;
    case RMC_STATUS_IOCTL_FAILED:
        return CUDA_ERROR_OPERATING_SYSTEM;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

CUdevice ordinal_of(const struct device *device)
{
    return (CUdevice)(device - devices);
}

CUdevice ordinal_of_card(const struct rmc_card *card)
{
    enum { INVALID = -2 };

    for (unsigned int i = 0; i < devices_visible; i++)
        if (devices[i].card == card)
            return (CUdevice)i;
    return INVALID;
}

unsigned int device_count(void)
{
    return devices_visible;
}

struct device *device_at(CUdevice ordinal)
{
    return ordinal >= 0 && (unsigned int)ordinal < devices_visible ? &devices[ordinal] : NULL;
}

#include "cuda.h"
#include <errno.h>
#include <unistd.h>

static struct rmc session = {.ctl_fd = -1};
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

bool session_inherited(void)
{
    return session.pid && session.pid != getpid();
}

void leave(struct entry *entry)
{
    if (entry->rm)
        rmc_unlock();
}

struct entry enter(void)
{
    rmc_lock();
    if (session.pid == getpid())
        return (struct entry){.rm = &session};
    rmc_unlock();
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

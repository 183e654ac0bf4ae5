#include "nvml.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct rmc session = {.ctl_fd = -1};
static unsigned int users; /* nvmlInit without its nvmlShutdown */

/* Handles stay good across a re-open: they say "card number n". */
static struct nvmlDevice_st {
    char unused;
} handles[RM_MAX_CARDS];

static nvmlReturn_t from_errno(int error)
{
    switch (error) {
    case 0:
        return NVML_SUCCESS;
    case -EACCES:
    case -EPERM:
        return NVML_ERROR_NO_PERMISSION;
    case -EIO:
        return NVML_ERROR_UNKNOWN;
    default:
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
}

/* Lock held. A forked child opens its own session: RM answers the parent's client to the parent only. */
static nvmlReturn_t session_open(void)
{
    if (session.pid == getpid())
        return NVML_SUCCESS;
    if (session.pid)
        rmc_close(&session);
    return from_errno(rmc_open(&session));
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t result;

    (void)flags;
    rmc_lock();
    result = session_open();
    if (!result)
        users++;
    rmc_unlock();
    return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

    rmc_lock();
    if (users) {
        if (!--users)
            rmc_close(&session);
        result = NVML_SUCCESS;
    }
    rmc_unlock();
    return result;
}

void leave(struct entry *entry)
{
    if (entry->rm)
        rmc_unlock();
}

struct entry enter(void)
{
    struct entry entry = {.error = NVML_ERROR_UNINITIALIZED};

    rmc_lock();
    if (users)
        entry.error = session_open();
    if (entry.error)
        rmc_unlock();
    else
        entry.rm = &session;
    return entry;
}

struct entry enter_device(nvmlDevice_t device)
{
    struct entry entry = enter();

    if (entry.error)
        return entry;
    entry.card = card_of(entry.rm, device);
    if (entry.card)
        return entry;
    leave(&entry);
    return (struct entry){.error = NVML_ERROR_INVALID_ARGUMENT};
}

const struct rmc_card *card_of(const struct rmc *rm, nvmlDevice_t device)
{
    return device < handles || device >= handles + rm->card_count ? NULL : &rm->cards[device - handles];
}

nvmlDevice_t handle_of(const struct entry *entry, uint32_t index)
{
    (void)entry;
    return &handles[index];
}

uint32_t index_of(const struct entry *entry)
{
    return (uint32_t)(entry->card - entry->rm->cards);
}

nvmlReturn_t from_rm(uint32_t status)
{
    switch (status) {
    case NV_OK:
        return NVML_SUCCESS;
    case NV_ERR_INSUFFICIENT_PERMISSIONS:
        return NVML_ERROR_NO_PERMISSION;
    case NV_ERR_NOT_SUPPORTED:
        return NVML_ERROR_NOT_SUPPORTED;
    case NV_ERR_NO_MEMORY:
        return NVML_ERROR_MEMORY;
    case RMC_STATUS_IOCTL_FAILED:
        return NVML_ERROR_GPU_IS_LOST;
    default:
        return NVML_ERROR_UNKNOWN;
    }
}

nvmlReturn_t copy_text(char *out, unsigned int bytes, const char *text)
{
    size_t length = strlen(text) + 1;

    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (length > bytes)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, length);
    return NVML_SUCCESS;
}

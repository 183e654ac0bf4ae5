#include "nvml.h"
#include <stdlib.h>

/* A process computes on a card when it holds a channel group there. */
enum { COMPUTE_CLASS = KEPLER_CHANNEL_GROUP_A, NO_INSTANCE = -1 };

struct use {
    unsigned int pid;
    unsigned long long bytes;
};

static uint32_t read_uses(const struct entry *entry, struct use *uses, uint32_t *count)
{
    struct rm_pids pids = {.id = COMPUTE_CLASS};
    uint32_t status = rmc_control(entry->rm, entry->card->subdevice, NV2080_CTRL_CMD_GPU_GET_PIDS, &pids,
                                  sizeof pids);

    *count = 0;
    for (uint32_t first = 0; !status && first < pids.count; first += RM_MAX_PID_INFO) {
        struct rm_pid_info info = {0};

        while (info.count < RM_MAX_PID_INFO && first + info.count < pids.count) {
            info.entry[info.count].pid = pids.pid[first + info.count];
            info.count++;
        }
        status = rmc_control(entry->rm, entry->card->subdevice, NV2080_CTRL_CMD_GPU_GET_PID_INFO, &info,
                             sizeof info);
        for (uint32_t i = 0; !status && i < info.count; i++) {
            if (info.entry[i].result)
                continue; /* gone since the list was made */
            uses[(*count)++] = (struct use){
                .pid = info.entry[i].pid,
                .bytes = info.entry[i].memory_private + info.entry[i].memory_shared_owned,
            };
        }
    }
    return status;
}

/* version 1 fills nvmlProcessInfo_v1_t, 2 and 3 nvmlProcessInfo_t. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *infos, int version)
{
    struct use uses[RM_MAX_PIDS];
    uint32_t found, status, room;
    ENTER(entry, enter_device(device));

    if (!count || (*count && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    status = read_uses(&entry, uses, &found);
    if (status)
        return from_rm(status);
    room = *count;
    *count = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (uint32_t i = 0; i < found; i++) {
        if (version == 1)
            ((nvmlProcessInfo_v1_t *)infos)[i] = (nvmlProcessInfo_v1_t){uses[i].pid, uses[i].bytes};
        else
            ((nvmlProcessInfo_t *)infos)[i] = (nvmlProcessInfo_t){
                uses[i].pid, uses[i].bytes, (unsigned int)NO_INSTANCE, (unsigned int)NO_INSTANCE};
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    return list(device, count, infos, 1);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    return list(device, count, infos, 2);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    return list(device, count, infos, 3);
}

/* The simulated card draws nothing and has no MPS server. */
static nvmlReturn_t list_none(nvmlDevice_t device, unsigned int *count)
{
    ENTER(entry, enter_device(device));

    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

#define NONE(name)                                                           \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *infos) \
    {                                                                        \
        (void)infos;                                                         \
        return list_none(device, count);                                     \
    }
NONE(nvmlDeviceGetGraphicsRunningProcesses)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)

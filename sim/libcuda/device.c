#include "cuda.h"
#include <stdio.h>
#include <string.h>

enum { KIB = 1024 };

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(entry, enter_device(ordinal));

    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER(entry, enter());

    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int)device_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    ENTER(entry, enter_device(device));

    if (!name || bytes <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)bytes, "%s", entry.device->card->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    ENTER(entry, enter_device(device));

    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    rmc_uuid(entry.device->card, (uint8_t *)uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    static const uint32_t index = RM_FB_TOTAL_RAM_SIZE;
    uint32_t kib = 0, status;
    ENTER(entry, enter_device(device));

    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    status = rmc_memory_kib(entry.rm, entry.device->card, &index, &kib, 1);
    if (!status)
        *bytes = (size_t)kib * KIB;
    return from_rm(status);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    return cuDeviceTotalMem_v2(bytes, device);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    ENTER(entry, enter_device(device));

    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = (int)entry.device->card->model->cc_major;
    *minor = (int)entry.device->card->model->cc_minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *bus_id, int bytes, CUdevice device)
{
    const struct rm_card_info *info;
    ENTER(entry, enter_device(device));

    if (!bus_id || bytes <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    info = &entry.device->card->info;
    snprintf(bus_id, (size_t)bytes, "%04x:%02x:%02x.%x", info->pci_domain, info->pci_bus, info->pci_slot,
             info->pci_function);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *bus_id)
{
    unsigned int domain = 0, bus = 0, slot = 0;
    ENTER(entry, enter());

    if (!device || !bus_id)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(bus_id, "%x:%x", &bus, &slot) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (CUdevice i = 0; i < (CUdevice)device_count(); i++) {
        const struct rm_card_info *info = &device_at(i)->card->info;

        if (info->pci_domain != domain || info->pci_bus != bus || info->pci_slot != slot)
            continue;
        *device = i;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetExecAffinitySupport(int *supported, int type, CUdevice device)
{
    ENTER(entry, enter_device(device));

    if (!supported || type)
        return CUDA_ERROR_INVALID_VALUE;
    *supported = 0;
    return CUDA_SUCCESS;
}

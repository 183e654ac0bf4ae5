#include "cuda.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = CUDA_SUCCESS;
    ENTER(entry, enter_device(device));

    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (!entry.device->primary)
        result = context_make(entry.rm, entry.device, entry.device->primary_flags, &entry.device->primary);
    if (result)
        return result;
    entry.device->primary->primary = true;
    entry.device->primary_users++;
    *context = entry.device->primary;
    return CUDA_SUCCESS;
}

static void end_primary(const struct entry *entry)
{
    if (entry->device->primary)
        context_end(entry->rm, entry->device->primary);
    entry->device->primary = NULL;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER(entry, enter_device(device));

    if (!entry.device->primary_users)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!--entry.device->primary_users)
        end_primary(&entry);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

/* Its users have to retain it anew. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    ENTER(entry, enter_device(device));

    end_primary(&entry);
    entry.device->primary_users = 0;
    entry.device->primary_flags = 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    ENTER(entry, enter_device(device));

    entry.device->primary_flags = flags;
    if (entry.device->primary)
        entry.device->primary->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    ENTER(entry, enter_device(device));

    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = entry.device->primary_flags;
    *active = entry.device->primary != NULL;
    return CUDA_SUCCESS;
}

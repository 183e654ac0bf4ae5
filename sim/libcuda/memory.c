#include "cuda.h"

enum { KIB = 1024 };

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    static const uint32_t indices[] = {RM_FB_HEAP_FREE, RM_FB_TOTAL_RAM_SIZE};
    uint32_t kib[2] = {0}, status;
    CUcontext context;
    ENTRY entry = enter_context(&context);

    if (entry.error)
        return entry.error;
    if (!free_bytes || !total_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    status = rmc_memory_kib(entry.rm, context->device->card, indices, kib, 2);
    if (status)
        return from_rm(status);
    *free_bytes = (size_t)kib[0] * KIB;
    *total_bytes = (size_t)kib[1] * KIB;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return cuMemGetInfo_v2(free_bytes, total_bytes);
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct rm_memory params = {.size = bytes};
    struct range range = {.bytes = bytes};
    uint32_t status;
    ENTRY entry = enter_context(&range.context);

    if (entry.error)
        return entry.error;
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    params.owner = entry.rm->client;
    status = rmc_alloc(entry.rm, range.context->device->card->device, &range.handle, NV01_MEMORY_LOCAL_USER,
                       &params, sizeof params);
    if (status)
        return from_rm(status);
    if (!range_add(&range)) {
        rmc_free(entry.rm, range.handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = range.base;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    return cuMemAlloc_v2(pointer, bytes);
}

CUresult memory_free(CUdeviceptr pointer, bool opened)
{
    const struct range *range;
    uint32_t status;
    CUcontext context;
    ENTRY entry = enter_context(&context);

    if (entry.error)
        return entry.error;
    if (!pointer && !opened)
        return CUDA_SUCCESS;
    range = range_at(pointer);
    if (!range || range->base != pointer || range->opened != opened)
        return CUDA_ERROR_INVALID_VALUE;
    status = rmc_free(entry.rm, range->handle);
    if (!status)
        range_remove(range);
    return from_rm(status);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return memory_free(pointer, false);
}

CUresult cuMemFree(CUdeviceptr pointer)
{
    return cuMemFree_v2(pointer);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    const struct range *range;
    CUcontext context;
    ENTRY entry = enter_context(&context);

    if (entry.error)
        return entry.error;
    range = range_at(pointer);
    if (!range)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = range->base;
    if (bytes)
        *bytes = range->bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    return cuMemGetAddressRange_v2(base, bytes, pointer);
}

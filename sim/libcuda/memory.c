#include "moves.h"
#include "ranges.h"

enum { KIB = 1024 };

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    static const uint32_t indices[] = {RM_FB_HEAP_FREE, RM_FB_TOTAL_RAM_SIZE};
    uint32_t kib[2] = {0}, status;
    ENTER_CONTEXT(entry, context);

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

CUresult memory_make(const struct rmc *rm, struct range *range)
{
    struct rm_memory params = {.owner = rm->client, .size = range->bytes};
    uint32_t status = rmc_alloc(rm, range->card->device, &range->handle, NV01_MEMORY_LOCAL_USER, &params,
                                sizeof params);

    if (status)
        return from_rm(status);
    if (!range_add(range)) {
        rmc_free(rm, range->handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return memory_reach(rm, range_at(range->base));
}

CUresult memory_reach(const struct rmc *rm, struct range *range)
{
    CUresult error = reach(rm, range);

    if (!error)
        return CUDA_SUCCESS;
    reach_end(rm, range);
    rmc_free(rm, range->handle);
    range_remove(range);
    return error;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct range range = {.bytes = bytes};
    CUresult error;
    ENTER(entry, enter_context(&range.context));

    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    range.card = range.context->device->card;
    error = memory_make(entry.rm, &range);
    if (!error)
        *pointer = range.base;
    return error;
}

/* Rows that begin where every kind of access may begin. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes)
{
    enum { PITCH_BYTES = 512 };
    size_t row = (width + PITCH_BYTES - 1) & ~(size_t)(PITCH_BYTES - 1);
    CUresult error;

    if (!pitch || !width || !height || row < width || height > SIZE_MAX / row ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    error = cuMemAlloc_v2(pointer, row * height);
    if (!error)
        *pitch = row;
    return error;
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    return cuMemAlloc_v2(pointer, bytes);
}

struct entry enter_settled(void)
{
    CUcontext context;
    PASSAGE passage = passage_begin();

    moves_finish();
    return enter_context(&context);
}

static CUresult free_range(const struct rmc *rm, struct range *range)
{
    uint32_t status;

    reach_end(rm, range);
    status = range->handle ? rmc_free(rm, range->handle) : NV_OK;
    if (!status)
        range_remove(range);
    return from_rm(status);
}

void memory_end_context(const struct rmc *rm, CUcontext context)
{
    struct range *range;

    for (size_t i = 0; (range = range_number(i));) {
        if (range->context != context) {
            i++;
            continue;
        }
        reach_end(rm, range);
        if (range->handle)
            rmc_free(rm, range->handle);
        range_remove(range);
    }
}

CUresult memory_free(CUdeviceptr pointer, bool opened)
{
    struct range *range;
    ENTER(entry, enter_settled());

    if (!pointer && !opened)
        return CUDA_SUCCESS;
    range = range_in_use(pointer);
    if (!range || range->base != pointer)
        return CUDA_ERROR_INVALID_VALUE;
    if (opened ? range->kind != RANGE_OPENED : range->kind != RANGE_DEVICE && range->kind != RANGE_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    return free_range(entry.rm, range);
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
    ENTER_CONTEXT(entry, context);

    range = range_in_use(pointer);
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

/* Memory of the host that the card may reach. Its address is the same for both. */
#include "moves.h"
#include "ranges.h"
#include <sys/mman.h>

enum {
    ALLOC_FLAGS = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED,
    REGISTER_FLAGS = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                     CU_MEMHOSTREGISTER_READ_ONLY,
};

/* Every context may use it; it ends with the one that it was made in. */
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    struct rm_memory params = {
        .size = bytes,
        .attr = RM_MEMORY_LOCATION_HOST << RM_MEMORY_ATTR_LOCATION_SHIFT,
    };
    struct range range = {.bytes = bytes, .kind = RANGE_HOST, .flags = flags | CU_MEMHOSTALLOC_DEVICEMAP};
    uint32_t status;
    ENTER(entry, enter_context(&range.context));

    if (!pointer || !bytes || flags & ~(unsigned int)ALLOC_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    range.card = range.context->device->card;
    params.owner = entry.rm->client;
    status = rmc_alloc(entry.rm, range.card->device, &range.handle, NV01_MEMORY_SYSTEM, &params,
                       sizeof params);
    if (status) /* more than the driver makes in one piece, too */
        return status == NV_ERR_INVALID_ARGUMENT ? CUDA_ERROR_OUT_OF_MEMORY : from_rm(status);
    if (!range_add(&range)) {
        rmc_free(entry.rm, range.handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!contents_map_at(entry.rm, range_at(range.base), PROT_READ | PROT_WRITE)) {
        rmc_free(entry.rm, range.handle);
        range_remove(range_at(range.base));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = (void *)(uintptr_t)range.base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

CUresult cuMemAllocHost(void **pointer, size_t bytes)
{
    return cuMemAllocHost_v2(pointer, bytes);
}

static struct range *host_range(const void *pointer, enum range_kind kind)
{
    struct range *range = range_at((uintptr_t)pointer);

    return range && range->base == (uintptr_t)pointer && range->kind == kind ? range : NULL;
}

CUresult cuMemFreeHost(void *pointer)
{
    struct range *range;
    ENTER(entry, enter_settled());

    range = host_range(pointer, RANGE_HOST);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    if (range->handle)
        rmc_free(entry.rm, range->handle);
    range_remove(range);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    struct range range = {
        .base = (uintptr_t)pointer,
        .bytes = bytes,
        .kind = RANGE_REGISTERED,
        .at = pointer,
        .flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP,
    };
    ENTER(entry, enter_context(&range.context));

    if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!pointer || !bytes || range.base + bytes < range.base || flags & ~(unsigned int)REGISTER_FLAGS ||
        address_is_ours(range.base))
        return CUDA_ERROR_INVALID_VALUE;
    return range_add_at(&range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    return cuMemHostRegister_v2(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void *pointer)
{
    struct range *range;
    ENTER(entry, enter_settled());

    range = host_range(pointer, RANGE_REGISTERED);
    if (!range)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    range_remove(range);
    return CUDA_SUCCESS;
}

static CUresult host_flags(const void *pointer, unsigned int *flags)
{
    const struct range *range;
    ENTER_CONTEXT(entry, context);

    range = range_at((uintptr_t)pointer);
    if (!range || range_is_on_card(range))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = range->flags;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
    return flags ? host_flags(pointer, flags) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned int flags)
{
    unsigned int known;
    CUresult error = device && !flags ? host_flags(pointer, &known) : CUDA_ERROR_INVALID_VALUE;

    if (!error)
        *device = (uintptr_t)pointer;
    return error;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *pointer, unsigned int flags)
{
    return cuMemHostGetDevicePointer_v2(device, pointer, flags);
}

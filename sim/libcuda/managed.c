/* Memory that host and card reach at one address. It is the card's from the start, as on a card that takes no
 * page faults: it counts in full, and there is at most as much as the card has. */
#include "moves.h"
#include "stream.h"
#include "ranges.h"
#include <string.h>
#include <sys/mman.h>

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    struct range range = {.bytes = bytes, .kind = RANGE_MANAGED, .flags = flags};
    CUresult error;
    ENTRY entry = enter_context(&range.context);

    if (entry.error)
        return entry.error;
    if (!pointer || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    range.card = range.context->device->card;
    error = memory_make(entry.rm, &range);
    if (error)
        return error;
    if (!contents_map_at(entry.rm, range_at(range.base), PROT_READ | PROT_WRITE)) {
        rmc_free(entry.rm, range.handle);
        range_remove(range_at(range.base));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = range.base;
    return CUDA_SUCCESS;
}

static CUresult check_managed(CUdeviceptr pointer, size_t bytes)
{
    const struct range *range;
    CUcontext context;
    ENTRY entry = enter_context(&context);

    if (entry.error)
        return entry.error;
    range = range_in_use(pointer);
    return range && range->kind == RANGE_MANAGED && bytes && bytes <= range->bytes - (pointer - range->base)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_place(CUmemLocation location)
{
    ENTRY entry = enter();

    if (entry.error)
        return entry.error;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_at(location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    return location.type >= CU_MEM_LOCATION_TYPE_DEVICE &&
                   location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUmemLocation place_of_device(CUdevice device)
{
    enum { HOST = -1 };

    return device == HOST ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
                          : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

/* It is where it is asked for already, and takes no time. */
CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags,
                               CUstream handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    if (!error)
        error = flags ? CUDA_ERROR_INVALID_VALUE : check_managed(pointer, bytes);
    return error ? error : check_place(location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync_v2(pointer, bytes, place_of_device(device), 0, stream);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location)
{
    enum { READ_MOSTLY = 1, UNSET_PREFERRED = 4, UNSET_ACCESSED_BY = 6 };
    CUresult error = advice < READ_MOSTLY || advice > UNSET_ACCESSED_BY ? CUDA_ERROR_INVALID_VALUE
                                                                        : check_managed(pointer, bytes);

    if (error || advice <= READ_MOSTLY + 1 || advice == UNSET_PREFERRED)
        return error;
    return check_place(location);
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device)
{
    return cuMemAdvise_v2(pointer, bytes, advice, place_of_device(device));
}

/* Nothing that was advised is kept. */
CUresult cuMemRangeGetAttribute(void *data, size_t data_bytes, int attribute, CUdeviceptr pointer,
                                size_t bytes)
{
    enum { READ_MOSTLY = 1, LAST_PREFETCH_ID = 8, DEVICE_INVALID = -2 };
    CUresult error = check_managed(pointer, bytes);
    int value = attribute == READ_MOSTLY ? 0 : DEVICE_INVALID;

    if (error)
        return error;
    if (!data || data_bytes < sizeof value || data_bytes % sizeof value || attribute < READ_MOSTLY ||
        attribute > LAST_PREFETCH_ID)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < data_bytes; i += sizeof value)
        memcpy((uint8_t *)data + i, &value, sizeof value);
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, int *attributes, size_t count,
                                 CUdeviceptr pointer, size_t bytes)
{
    CUresult error = data && sizes && attributes && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; i < count && !error; i++)
        error = cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], pointer, bytes);
    return error;
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t bytes, unsigned int flags)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    if (error)
        return error;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    return check_managed(pointer, bytes ? bytes : 1);
}

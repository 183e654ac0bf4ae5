/* Memory that host and cards reach at one address: a managed range, which is what the process maps of its
 * file of nvidia-uvm at the address that is the offset. No object of the driver's stands for it. */
#include "../abi/uvm_managed_abi.h"
#include "moves.h"
#include "ranges.h"
#include "stream.h"
#include <string.h>

enum { PAGE_MASK = 4095 };

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    struct range range = {.bytes = bytes, .kind = RANGE_MANAGED, .flags = flags};
    uint32_t status;
    ENTER(entry, enter_context(&range.context));

    if (!pointer || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    range.card = range.context->device->card;
    status = uvm_join(entry.rm);
    if (status)
        return from_rm(status);
    if (!range_add(&range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!contents_map_managed(range_at(range.base), uvm_file())) {
        range_remove(range_at(range.base));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = range.base;
    return CUDA_SUCCESS;
}

static bool is_managed(CUdeviceptr pointer, size_t bytes)
{
    const struct range *range = range_in_use(pointer);

    return range && range->kind == RANGE_MANAGED && bytes && bytes <= range->bytes - (pointer - range->base);
}

static CUresult check_managed(CUdeviceptr pointer, size_t bytes)
{
    ENTER_CONTEXT(entry, context);

    return is_managed(pointer, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult name_of(CUmemLocation location, uint8_t uuid[UVM_UUID_BYTES])
{
    const struct device *device = NULL;

    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        device = device_at(location.id);
        if (!device)
            return CUDA_ERROR_INVALID_DEVICE;
        rmc_uuid(device->card, uuid);
        return CUDA_SUCCESS;
    }
    memcpy(uuid, uvm_host(), UVM_UUID_BYTES);
    return location.type > CU_MEM_LOCATION_TYPE_DEVICE &&
                   location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* Of the pages that these bytes are in. location: NULL for commands without a processor. */
static CUresult tell(uint32_t cmd, CUdeviceptr pointer, size_t bytes, const CUmemLocation *location)
{
    struct uvm_migrate params = {.range.base = pointer & ~(uint64_t)PAGE_MASK, .node = -1};
    CUresult error = CUDA_SUCCESS;
    CUcontext context;
    uint32_t status;
    ENTER(entry, enter_context(&context));

    if (!is_managed(pointer, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (location)
        error = name_of(*location, params.to);
    if (error)
        return error;
    params.range.length = ((pointer + bytes + PAGE_MASK) & ~(uint64_t)PAGE_MASK) - params.range.base;
    status = uvm_join(entry.rm);
    return from_rm(status ? status : rmc_uvm(entry.rm, uvm_file(), cmd, &params));
}

static CUmemLocation place_of_device(CUdevice device)
{
    enum { HOST = -1 };

    return device == HOST ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
                          : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

/* At once: it takes no time. */
CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags,
                               CUstream handle)
{
    HOLD_STREAM(stream, handle);

    return flags ? CUDA_ERROR_INVALID_VALUE : tell(UVM_MIGRATE, pointer, bytes, &location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync_v2(pointer, bytes, place_of_device(device), 0, stream);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location)
{
    static const struct {
        uint32_t cmd;
        bool of_processor;
    } commands[] = {
        {UVM_ENABLE_READ_DUPLICATION, false}, {UVM_DISABLE_READ_DUPLICATION, false},
        {UVM_SET_PREFERRED_LOCATION, true},   {UVM_UNSET_PREFERRED_LOCATION, false},
        {UVM_SET_ACCESSED_BY, true},          {UVM_UNSET_ACCESSED_BY, true},
    };

    if (advice < 1 || (size_t)advice > sizeof commands / sizeof commands[0])
        return CUDA_ERROR_INVALID_VALUE;
    return tell(commands[advice - 1].cmd, pointer, bytes,
                commands[advice - 1].of_processor ? &location : NULL);
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
    HOLD_STREAM(stream, handle);

    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    return check_managed(pointer, bytes ? bytes : 1);
}

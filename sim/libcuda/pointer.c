#include "ranges.h"
#include <string.h>

enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, NO_DEVICE = -2 };

union value {
    const void *pointer;
    uint64_t number;
    int32_t small;
};

/* In bytes, by attribute; 0: not answered. */
static size_t size_of(int attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return sizeof(uint64_t);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return sizeof(int32_t);
    default:
        return 0;
    }
}

/* False: such memory has no such thing. */
static bool read_value(const struct range *range, int attribute, CUdeviceptr pointer, union value *value)
{
    bool on_card = range_is_on_card(range);
    bool reached_by_host = !on_card || range->kind == RANGE_MANAGED;

    value->number = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        value->pointer = range->context;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        value->small = on_card ? MEMORY_DEVICE : MEMORY_HOST;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        value->number = pointer;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        value->number = reached_by_host ? pointer : 0;
        return reached_by_host;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        value->number = range->id;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        value->small = range->kind == RANGE_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        value->small = range->context ? ordinal_of(range->context->device) : ordinal_of_card(range->card);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        value->small = range->kind == RANGE_DEVICE && !range->pool;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        value->number = range->base;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        value->number = range->bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        value->small = 1;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        value->small = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        value->pointer = range->pool;
        break;
    default:
        break;
    }
    return true;
}

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer)
{
    const struct range *range;
    union value value;
    ENTER_CONTEXT(entry, context);

    range = range_in_use(pointer);
    if (!data || !range)
        return CUDA_ERROR_INVALID_VALUE;
    if (!size_of(attribute))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!read_value(range, attribute, pointer, &value))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &value, size_of(attribute));
    return CUDA_SUCCESS;
}

/* Of memory that is not CUDA's, nothing is an answer too. */
CUresult cuPointerGetAttributes(unsigned int count, const int *attributes, void **data, CUdeviceptr pointer)
{
    const struct range *range;
    ENTER(entry, enter());

    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    range = range_in_use(pointer);
    for (unsigned int i = 0; i < count; i++) {
        union value value = {.number = 0};

        if (!size_of(attributes[i]))
            return CUDA_ERROR_NOT_SUPPORTED;
        if (range)
            read_value(range, attributes[i], pointer, &value);
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            value.small = NO_DEVICE;
        memcpy(data[i], &value, size_of(attributes[i]));
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr pointer)
{
    ENTER(entry, enter());

    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !range_in_use(pointer))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS; /* a copy that blocks returns when it is done anyway */
}

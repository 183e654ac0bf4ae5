#include "pool.h"
#include <string.h>

static CUresult get_pool(CUmemoryPool *out, CUdevice ordinal, CUmemoryPool (*which)(struct device *device))
{
    ENTER(entry, enter_device(ordinal));

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = which(entry.device);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    return get_pool(pool, device, pool_default);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return get_pool(pool, device, pool_current);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle)
{
    CUmemoryPool pool;
    ENTER(entry, enter_device(device));

    pool = pool_find(handle);
    if (!pool || pool->device != entry.device)
        return CUDA_ERROR_INVALID_VALUE;
    entry.device->current_pool = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    struct device *device;
    ENTER(entry, enter());

    if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->handleTypes || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    device = device_at(props->location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = pool_make(device);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What programs still hold of it becomes the default pool's. */
CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    struct range *range;
    CUmemoryPool pool;
    ENTER(entry, enter());

    pool = pool_find(handle);
    if (!pool || pool == pool->device->default_pool || !pool_default(pool->device))
        return CUDA_ERROR_INVALID_VALUE;
    pool_trim(entry.rm, pool, 0);
    for (size_t i = 0; (range = range_number(i)); i++)
        if (range->pool == pool)
            range->pool = pool->device->default_pool;
    if (pool->device->current_pool == pool)
        pool->device->current_pool = NULL;
    object_remove(&pool->object);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    CUmemoryPool pool;
    PASSAGE passage = passage_begin();
    ENTRY entry;

    pools_settle();
    entry = enter();
    if (entry.error)
        return entry.error;
    pool = pool_find(handle);
    if (pool)
        pool_trim(entry.rm, pool, keep);
    leave(&entry);
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value)
{
    struct pool_use use;
    CUmemoryPool pool;
    uint64_t number;
    ENTER(entry, enter());

    pool = pool_find(handle);
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute >= CU_MEMPOOL_ATTR_REUSE_FIRST && attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        memcpy(value, &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FIRST], sizeof(int));
        return CUDA_SUCCESS;
    }
    use = pool_use(pool);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        number = pool->threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        number = use.reserved;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        number = pool->high.reserved;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        number = use.used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        number = pool->high.used;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
}

/* A high-water mark can only be put back to what is now. */
CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value)
{
    CUmemoryPool pool;
    uint64_t number;
    ENTER(entry, enter());

    pool = pool_find(handle);
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute >= CU_MEMPOOL_ATTR_REUSE_FIRST && attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        memcpy(&pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FIRST], value, sizeof(int));
        return CUDA_SUCCESS;
    }
    memcpy(&number, value, sizeof number);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = number;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !number)
        pool->high.reserved = pool_use(pool).reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !number)
        pool->high.used = pool_use(pool).used;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static uint32_t bit_of(const struct rmc *rm, const struct device *device)
{
    return 1u << (device->card - rm->cards);
}

/* Its own card always has access; a peer of it can be given it. */
static CUresult give_access(const struct rmc *rm, CUmemoryPool pool, const CUmemAccessDesc *description)
{
    const struct device *device = device_at(description->location.id);

    if (description->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (device == pool->device)
        return description->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_DEVICE;
    if (description->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        pool->reach &= ~bit_of(rm, device);
    else if (description->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    else if (!devices_are_peers(rm, device, pool->device))
        return CUDA_ERROR_INVALID_DEVICE;
    else
        pool->reach |= bit_of(rm, device);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *descriptions, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    CUmemoryPool pool;
    ENTER(entry, enter());

    pool = pool_find(handle);
    if (!pool || (count && !descriptions))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !result; i++)
        result = give_access(entry.rm, pool, &descriptions[i]);
    return result ? result : reach_all(entry.rm);
}

CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool handle, const CUmemLocation *location)
{
    CUmemoryPool pool;
    ENTER(entry, enter());

    pool = pool_find(handle);
    if (!flags || !pool || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !device_at(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = (pool->reach | bit_of(entry.rm, pool->device)) & bit_of(entry.rm, device_at(location->id))
                 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

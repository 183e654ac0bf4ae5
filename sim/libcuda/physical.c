/* Memory without an address, handed to other processes by descriptor: cuMemCreate() and its kin. */
#include "ranges.h"
#include <stdlib.h>

static struct physical *all;

void physical_forget(void)
{
    while (all) {
        struct physical *gone = all;

        all = gone->next;
        free(gone);
    }
}

struct physical *physical_find(CUmemGenericAllocationHandle handle)
{
    struct physical *physical = all;

    while (physical && (uintptr_t)physical != handle)
        physical = physical->next;
    return physical;
}

struct physical *physical_next(const struct physical *after)
{
    return after ? after->next : all;
}

CUresult physical_put(const struct rmc *rm, struct physical *physical)
{
    struct physical **at = &all;
    CUresult result;

    if (physical->users > 1) {
        physical->users--;
        return CUDA_SUCCESS;
    }
    result = from_rm(rmc_free(rm, physical->handle));
    if (result)
        return result;
    while (*at != physical)
        at = &(*at)->next;
    *at = physical->next;
    free(physical);
    return CUDA_SUCCESS;
}

static CUresult keep(const struct rmc *rm, const struct physical *made, CUmemGenericAllocationHandle *handle)
{
    struct physical *p = malloc(sizeof *p);

    if (!p) {
        rmc_free(rm, made->handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *p = *made;
    p->users = 1;
    p->next = all;
    all = p;
    *handle = (uintptr_t)p;
    return CUDA_SUCCESS;
}

static bool of_a_device(const CUmemAllocationProp *prop)
{
    return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, unsigned int option)
{
    ENTER(entry, enter());

    if (!bytes || !of_a_device(prop) || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = GRANULARITY_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    struct rm_memory params = {.size = bytes};
    struct physical made = {.bytes = bytes};
    const struct device *device;
    uint32_t status;
    ENTER(entry, enter());

    if (!handle || !bytes || bytes % GRANULARITY_BYTES || flags || !of_a_device(prop))
        return CUDA_ERROR_INVALID_VALUE;
    device = device_at(prop->location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    made.card = device->card;
    params.owner = entry.rm->client;
    status = rmc_alloc(entry.rm, made.card->device, &made.handle, NV01_MEMORY_LOCAL_USER, &params,
                       sizeof params);
    return status ? from_rm(status) : keep(entry.rm, &made, handle);
}

/* It lives while it is mapped somewhere. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct physical *physical;
    ENTER(entry, enter());

    physical = physical_find(handle);
    return physical ? physical_put(entry.rm, physical) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    const struct physical *physical;
    ENTER(entry, enter());

    physical = physical_find(handle);
    if (!prop || !physical)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal_of_card(physical->card)},
    };
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    struct physical *physical;
    uint32_t status;
    ENTER(entry, enter());

    physical = physical_find(handle);
    if (!physical || !shareable || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    status = rmc_export(entry.rm, physical->card, physical->handle, physical->bytes, shareable);
    physical->shared |= !status;
    return from_rm(status);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    struct physical made = {.shared = true};
    uint32_t status;
    ENTER(entry, enter());

    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    status = rmc_import(entry.rm, (int)(intptr_t)shareable, &made.card, &made.handle, &made.bytes);
    return status ? from_rm(status) : keep(entry.rm, &made, handle);
}

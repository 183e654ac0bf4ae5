/* Memory without an address, which is handed to other processes by descriptors: cuMemCreate() and what goes with it. Addresses
 * for it are not given out: nothing is behind them here. */
#include "cuda.h"
#include <stdlib.h>

enum { GRANULARITY_BYTES = 2 << 20 };

struct physical {
    struct physical *next;
    const struct rmc_card *card;
    uint64_t bytes;
    uint32_t handle;
};
static struct physical *all;

void physical_forget(void)
{
    while (all) {
        struct physical *gone = all;

        all = gone->next;
        free(gone);
    }
}

/* Where it hangs in the list; NULL: no such handle. */
static struct physical **find(CUmemGenericAllocationHandle handle)
{
    struct physical **at = &all;

    while (*at && (uintptr_t)*at != handle)
        at = &(*at)->next;
    return *at ? at : NULL;
}

static CUresult keep(const struct rmc *rm, const struct physical *made, CUmemGenericAllocationHandle *handle)
{
    struct physical *p = malloc(sizeof *p);

    if (!p) {
        rmc_free(rm, made->handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *p = *made;
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
    ENTRY entry = enter();

    if (entry.error)
        return entry.error;
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
    ENTRY entry = enter();

    if (entry.error)
        return entry.error;
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

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct physical **at, *gone;
    CUresult result;
    ENTRY entry = enter();

    if (entry.error)
        return entry.error;
    at = find(handle);
    if (!at)
        return CUDA_ERROR_INVALID_VALUE;
    gone = *at;
    result = from_rm(rmc_free(entry.rm, gone->handle));
    if (result)
        return result;
    *at = gone->next;
    free(gone);
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    struct physical **at;
    ENTRY entry = enter();

    if (entry.error)
        return entry.error;
    at = find(handle);
    if (!at || !shareable || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return from_rm(rmc_export(entry.rm, (*at)->card, (*at)->handle, (*at)->bytes, shareable));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    struct physical made = {.bytes = 0};
    uint32_t status;
    ENTRY entry = enter();

    if (entry.error)
        return entry.error;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    status = rmc_import(entry.rm, (int)(intptr_t)shareable, &made.card, &made.handle, &made.bytes);
    return status ? from_rm(status) : keep(entry.rm, &made, handle);
}

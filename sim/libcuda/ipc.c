/* Memory of another process of the container: cuIpc*, by the names of its client and its object. */
#include "ranges.h"
#include <string.h>

/* What a CUipcMemHandle holds. */
struct shared {
    int32_t pid;
    uint32_t client, handle, instance;
    uint64_t bytes;
};
_Static_assert(sizeof(struct shared) <= sizeof(CUipcMemHandle), "what is told of it fits");

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr pointer)
{
    struct range *range;
    struct shared shared;
    CUcontext context;
    CUresult result;
    ENTER(entry, enter_context(&context));

    range = range_in_use(pointer);
    if (!out || !range || range->kind != RANGE_DEVICE || range->pool)
        return CUDA_ERROR_INVALID_VALUE;
    result = from_rm(rmc_share(entry.rm, range->handle));
    if (result)
        return result;
    range->shared = true;
    shared = (struct shared){
        .pid = entry.rm->pid,
        .client = entry.rm->client,
        .handle = range->handle,
        .instance = range->context->device->card->instance,
        .bytes = range->bytes,
    };
    memset(out, 0, sizeof *out);
    memcpy(out, &shared, sizeof shared);
    return CUDA_SUCCESS;
}

/* NULL: the process has no card of that number. */
static const struct device *device_of(uint32_t instance)
{
    for (unsigned int i = 0; i < device_count(); i++)
        if (device_at((CUdevice)i)->card->instance == instance)
            return device_at((CUdevice)i);
    return NULL;
}

/* Memory of another card is the calling thread's card's to reach, as if it had asked for access. */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    struct range range = {.kind = RANGE_OPENED};
    const struct device *owner;
    struct shared shared;
    CUresult result;
    ENTER(entry, enter_context(&range.context));

    memcpy(&shared, &handle, sizeof shared);
    if (!pointer || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (shared.pid == entry.rm->pid && shared.client == entry.rm->client)
        return CUDA_ERROR_INVALID_CONTEXT;
    owner = device_of(shared.instance);
    if (!owner)
        return CUDA_ERROR_INVALID_DEVICE;
    if (owner != range.context->device) {
        if (!devices_are_peers(entry.rm, owner, range.context->device))
            return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        range.reach = 1u << (range.context->device->card - entry.rm->cards);
    }
    range.card = owner->card;
    result = from_rm(rmc_dup(entry.rm, range.card, &range.handle, shared.client, shared.handle));
    if (result)
        return result;
    range.bytes = shared.bytes;
    if (!range_add(&range)) {
        rmc_free(entry.rm, range.handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = memory_reach(entry.rm, range_at(range.base));
    *pointer = result ? 0 : range.base;
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    return memory_free(pointer, true);
}

/* Events have no names that another process could have. */
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    (void)handle;
    (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    (void)event;
    (void)handle;
    return CUDA_ERROR_NOT_SUPPORTED;
}

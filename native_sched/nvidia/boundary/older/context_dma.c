/* Context DMAs, and waiting for channels. */
#include "native_sched/nvidia/boundary/rm/create.h"
#include "older.h"
#include <string.h>

/* NVOS39_PARAMETERS and NV_CONTEXT_DMA_ALLOCATION_PARAMS (nvos.h). */
struct context_dma_call {
    uint32_t client, subdevice, handle, class_id, flags, selector, memory, pad;
    uint64_t offset, limit;
    uint32_t status, pad2;
};
struct context_dma {
    uint32_t subdevice, flags, memory, pad;
    uint64_t offset, limit;
};

/* RM makes the named class below the memory's parent, as ALLOC does (RmDeprecatedAllocContextDma()). Only
 * that use of context DMAs is served. */
struct answer mediate_context_dma(struct call *c)
{
    const struct context_dma_call *asked = (const void *)c->outer;
    struct creation a = {.root = asked->client, .handle = asked->handle, .class_id = asked->class_id};
    uint32_t slot;

    if (a.class_id != NV01_CONTEXT_DMA)
        return answered(NV_ERR_INVALID_CLASS);
    WITH_CALLS_OF(c->tenant);
    {
        const struct objects *o = &c->tenant->objects;
        WITH_TENANT(c->tenant);

        if (!(slot = call_find(c, asked->client, asked->memory)) ||
            !rm_class_has_names(o->slot[slot].class_id))
            return answered(NV_ERR_OBJECT_NOT_FOUND);
        a.parent = o->slot[o->slot[slot].parent].handle;
    }
    *(struct context_dma *)(void *)c->params = (struct context_dma){
        .subdevice = asked->subdevice,
        .flags = asked->flags,
        .memory = asked->memory,
        .offset = asked->offset,
        .limit = asked->limit,
    };
    c->params_bytes = sizeof(struct context_dma);
    return object_create(c, &c->file, &a);
}

/* Open drivers refuse it for channels that are named, and programs go on (580.159.04 on an H200). Others
 * wait, with locks that all tenants need. */
struct answer mediate_idle(struct call *c)
{
    enum { CHANNELS_AT = 12 }; /* numChannels of NVOS30_PARAMETERS */
    uint32_t channels;

    memcpy(&channels, c->outer + CHANNELS_AT, sizeof(channels));
    return answered(channels ? NV_ERR_INSUFFICIENT_PERMISSIONS : NV_OK);
}

#include "access.h"
#include "moves.h"
#include "ranges.h"
#include "stream.h"
#include <stdlib.h>

enum { FLAGS_MASK = 0xff };

CUresult context_make(struct rmc *rm, struct device *device, unsigned int flags, CUcontext *out)
{
    struct CUctx_st *context = calloc(1, sizeof *context);
    CUresult error;

    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (struct CUctx_st){.device = device, .flags = flags, .refs = 1};
    limits_default(context);
    context->engines = engines_make(rm, device->card, &error);
    if (error) {
        free(context);
        return error;
    }
    context->legacy_stream = stream_make(context, LEGACY_LANE);
    if (!context->legacy_stream) {
        engines_end(context->engines);
        context_release(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    contexts_add(context);
    *out = context;
    error = reach_all(rm); /* what its card was to reach once it has a context */
    if (error)
        context_end(rm, context);
    return error;
}

void context_end(struct rmc *rm, CUcontext context)
{
    access_end_context(context);
    if (uvm_leave(rm, context))
        reach_leave(rm, context->device->card);
    engines_end(context->engines);
    moves_end_context(context);
    memory_end_context(rm, context);
    contexts_remove(context);
    reach_all(rm);
    objects_end_context(context);
    context_release(context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    CUresult result;
    ENTER(entry, enter_device(device));

    if (!context || flags & ~(unsigned int)FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    result = context_make(entry.rm, entry.device, flags, context);
    if (!result && !stack_push(*context)) {
        context_end(entry.rm, *context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int affinities, unsigned int flags,
                        CUdevice device)
{
    if (affinity || affinities)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned int flags, CUdevice device)
{
    return params ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    ENTER(entry, enter());

    if (!context_live(context) || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack_top() == context)
        stack_pop();
    context_end(entry.rm, context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER_CONTEXT(entry, context);

    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal_of(context->device);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    ENTER(entry, enter());

    context = context ? context : stack_top();
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_live(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = ordinal_of(context->device);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    ENTER_CONTEXT(entry, context);

    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    enum { CONTEXT_API_VERSION = 3020 };
    ENTER(entry, enter());

    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_live(context ? context : stack_top()))
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = CONTEXT_API_VERSION;
    return CUDA_SUCCESS;
}

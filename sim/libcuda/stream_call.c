#include "stream.h"

enum { PRIORITY_LEAST = 0, PRIORITY_GREATEST = -5 };

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    ENTER_CONTEXT(entry, context);

    if (!stream || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *stream = stream_make(context, engines_lane(context->engines));
    if (!*stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*stream)->flags = flags;
    (*stream)->priority = priority < PRIORITY_GREATEST ? PRIORITY_GREATEST
                          : priority > PRIORITY_LEAST  ? PRIORITY_LEAST
                                                       : priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, PRIORITY_LEAST);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER_CONTEXT(entry, context);

    if (least)
        *least = PRIORITY_LEAST;
    if (greatest)
        *greatest = PRIORITY_GREATEST;
    return CUDA_SUCCESS;
}

/* Work that it still holds goes on. */
CUresult cuStreamDestroy_v2(CUstream handle)
{
    struct object *object;
    ENTER(entry, enter());

    object = object_find(handle, OBJECT_STREAM);
    if (!object || stream_is_legacy(handle) || handle->thread)
        return CUDA_ERROR_INVALID_HANDLE;
    object_remove(object);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle)
{
    return cuStreamDestroy_v2(handle);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    HOLD_STREAM(stream, handle);

    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    HOLD_STREAM(stream, handle);

    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    HOLD_STREAM(stream, handle);

    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = stream->object.context;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    HOLD_STREAM(stream, handle);

    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = (uintptr_t)stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    HOLD_STREAM(stream, handle);

    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal_of(stream->object.context->device);
    return CUDA_SUCCESS;
}

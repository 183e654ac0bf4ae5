#include "cuda.h"

struct entry enter_context(CUcontext *context)
{
    struct entry entry = enter();
    CUresult error = CUDA_ERROR_INVALID_CONTEXT;

    if (entry.error)
        return entry;
    *context = stack_top();
    if (context_live(*context))
        return entry;
    if (*context)
        error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    leave(&entry);
    return (struct entry){.error = error};
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER(entry, enter());

    if (context && !context_live(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    stack_pop();
    if (context)
        stack_push(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    ENTER(entry, enter());

    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = stack_top();
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER(entry, enter());

    if (!context_live(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return stack_push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUcontext popped;
    ENTER(entry, enter());

    popped = stack_pop();
    if (context)
        *context = popped;
    return popped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

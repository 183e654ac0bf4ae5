/* What a context may be told about its kernels. It is kept and read back; kernels here need none of it. */
#include "cuda.h"

enum { CACHE_CONFIGS = 4, BANK_CONFIGS = 3, SETTABLE_FLAGS = 0xff };

void limits_default(CUcontext context)
{
    static const size_t defaults[CONTEXT_LIMITS] = {
        1024,    /* CU_LIMIT_STACK_SIZE */
        1 << 20, /* CU_LIMIT_PRINTF_FIFO_SIZE */
        8 << 20, /* CU_LIMIT_MALLOC_HEAP_SIZE */
        2,       /* CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH */
        2048,    /* CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT */
        128,     /* CU_LIMIT_MAX_L2_FETCH_GRANULARITY */
        0,       /* CU_LIMIT_PERSISTING_L2_CACHE_SIZE */
    };

    for (int i = 0; i < CONTEXT_LIMITS; i++)
        context->limit[i] = defaults[i];
}

CUresult cuCtxGetLimit(size_t *value, int limit)
{
    ENTER_CONTEXT(entry, context);

    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit < 0 || limit >= CONTEXT_LIMITS)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limit[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(int limit, size_t value)
{
    ENTER_CONTEXT(entry, context);

    if (limit < 0 || limit >= CONTEXT_LIMITS)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context->limit[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(int *config)
{
    ENTER_CONTEXT(entry, context);

    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = context->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(int config)
{
    ENTER_CONTEXT(entry, context);

    if (config < 0 || config >= CACHE_CONFIGS)
        return CUDA_ERROR_INVALID_VALUE;
    context->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(int *config)
{
    ENTER_CONTEXT(entry, context);

    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = context->bank_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(int config)
{
    ENTER_CONTEXT(entry, context);

    if (config < 0 || config >= BANK_CONFIGS)
        return CUDA_ERROR_INVALID_VALUE;
    context->bank_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    ENTER_CONTEXT(entry, context);

    if (flags & ~(unsigned int)SETTABLE_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    ENTER(entry, enter());

    context = context ? context : stack_top();
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_live(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    CUcontext context;
    ENTRY entry = enter_context(&context);

    return entry.error;
}

/* What is known of a kernel: numbers of the public CUfunction_attribute list. */
#include "stream.h"

enum { CACHE_CONFIGS = 4, BANK_CONFIGS = 3, FUNCTION_ATTRIBUTES = 16, CARVEOUT_MAX = 100 };
enum {
    THREADS,
    REGISTERS = 4,
    PTX = 5,
    BINARY,
    DYNAMIC_SHARED = 8,
    CARVEOUT,
    DEFAULT_DYNAMIC_SHARED = 49152
};

CUresult function_attribute(int *value, int attribute, CUfunction handle, const struct rmc_card *card)
{
    const struct CUfunc_st *function = function_find(handle);
    const struct function_settings *settings;

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || attribute < 0 || attribute >= FUNCTION_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    settings = function_settings(handle);
    switch (attribute) {
    case THREADS:
        *value = MAX_THREADS_PER_BLOCK;
        break;
    case REGISTERS:
        *value = FUNCTION_REGISTERS;
        break;
    case PTX:
    case BINARY:
        *value = (int)(card->model->cc_major * 10 + card->model->cc_minor);
        break;
    case DYNAMIC_SHARED:
        *value = settings->dynamic_shared ? settings->dynamic_shared : DEFAULT_DYNAMIC_SHARED;
        break;
    case CARVEOUT:
        *value = settings->carveout - 1;
        break;
    default:
        *value = 0; /* memory of any kind: kernels here use none */
    }
    return CUDA_SUCCESS;
}

CUresult function_set_attribute(CUfunction handle, int attribute, int value, const struct rmc_card *card)
{
    if (!function_find(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    if (attribute == DYNAMIC_SHARED && value >= 0 && value <= (int)card->model->shared_per_block_optin_bytes)
        function_settings(handle)->dynamic_shared = value;
    else if (attribute == CARVEOUT && value >= -1 && value <= CARVEOUT_MAX)
        function_settings(handle)->carveout = value + 1;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult function_cache_config(CUfunction handle, int config)
{
    if (!function_find(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    return config < 0 || config >= CACHE_CONFIGS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    ENTER_CONTEXT(entry, context);

    return function_attribute(value, attribute, function, context->device->card);
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    ENTER_CONTEXT(entry, context);

    return function_set_attribute(function, attribute, value, context->device->card);
}

CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    ENTER_CONTEXT(entry, context);

    return function_cache_config(function, config);
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, int config)
{
    ENTER_CONTEXT(entry, context);

    if (!function_find(function))
        return CUDA_ERROR_INVALID_HANDLE;
    return config < 0 || config >= BANK_CONFIGS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

#include "stream.h"

static CUresult command_of(CUfunction handle, CUstream stream, const struct launch *launch,
                           struct sim_command *command)
{
    const struct CUfunc_st *function;
    CUcontext owner;
    ENTER(entry, enter());

    function = function_find(handle);
    owner = function ? ((const struct object *)function)->context : NULL;
    if (!function || (owner && owner != stream->object.context))
        return CUDA_ERROR_INVALID_HANDLE;
    return function_command(function, launch, command);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream handle, void **params, void **extra)
{
    struct launch launch = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, params, extra};
    struct sim_command command;
    CUresult error;
    HOLD_STREAM(stream, handle);

    (void)shared_bytes;
    error = command_of(function, stream, &launch, &command);
    return error ? error : stream_submit(stream, SIM_ENGINE_GRAPHICS, (struct commands){&command, 1});
}

/* All blocks of a kernel are there at once anyway. */
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                          params, NULL);
}

/* Attributes change nothing about how long it takes. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                          config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream,
                          params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    CUlaunchConfig own;

    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    own = *config;
    if (!own.hStream)
        own.hStream = CU_STREAM_PER_THREAD;
    return cuLaunchKernelEx(&own, function, params, extra);
}

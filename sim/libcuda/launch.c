#include "stream.h"

static CUresult command_of(CUfunction handle, CUstream stream, const struct launch *launch,
                           struct sim_command *command)
{
    const struct CUfunc_st *function;
    ENTRY entry = enter();

    if (entry.error)
        return entry.error;
    function = function_find(handle);
    if (!function || ((const struct object *)function)->context != stream->object.context)
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
    HELD_STREAM stream = stream_hold(handle, &error);

    (void)shared_bytes;
    if (!error)
        error = command_of(function, stream, &launch, &command);
    return error ? error : stream_submit(stream, SIM_ENGINE_GRAPHICS, (struct commands){&command, 1});
}

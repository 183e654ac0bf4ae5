#include "stream.h"

CUresult cuStreamSynchronize(CUstream handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    return error ? error : stream_wait(stream);
}

CUresult cuStreamQuery(CUstream handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    if (!error)
        error = engines_error(engines_of(stream));
    if (error)
        return error;
    return stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuCtxSynchronize(void)
{
    CUresult error;
    HELD_STREAM legacy = stream_hold(CU_STREAM_LEGACY, &error);
    struct engines *engines;

    if (error)
        return error;
    engines = engines_of(legacy);
    error = engines_error(engines);
    for (uint32_t i = 0; i < CHANNELS && !error; i++) {
        struct channel *channel = engines_channel_at(engines, i);

        if (channel)
            error = mark_wait(engines, channel_mark(channel));
    }
    return error;
}

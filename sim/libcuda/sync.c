#include "stream.h"

CUresult cuStreamSynchronize(CUstream handle)
{
    HOLD_STREAM(stream, handle);

    return stream_wait(stream);
}

CUresult cuStreamQuery(CUstream handle)
{
    CUresult error;
    HOLD_STREAM(stream, handle);

    error = engines_error(engines_of(stream));
    if (error)
        return error;
    return stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult wait_for_all(struct engines *engines)
{
    CUresult error = engines_error(engines);

    for (uint32_t i = 0; i < CHANNELS && !error; i++) {
        struct channel *channel = engines_channel_at(engines, i);

        if (channel)
            error = mark_wait(engines, channel_mark(channel));
    }
    if (!error)
        work_settle();
    return error;
}

CUresult cuCtxSynchronize(void)
{
    HOLD_STREAM(legacy, CU_STREAM_LEGACY);

    return wait_for_all(engines_of(legacy));
}

static CUcontext context_named(CUcontext context, CUresult *error)
{
    ENTRY entry = enter();

    *error = entry.error;
    if (!entry.error && !context_live(context))
        *error = CUDA_ERROR_INVALID_CONTEXT;
    return *error ? NULL : context_hold(context);
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    CUresult error;
    CUcontext context;
    PASSAGE passage = passage_begin();

    if (!handle)
        return cuCtxSynchronize();
    context = context_named(handle, &error);
    if (error)
        return error;
    error = wait_for_all(context->engines);
    context_release(context);
    return error;
}

#include "stream.h"

/* Lock held. Made when the thread first names it, and there until the context ends: a thread that gets the
 * place of one that has ended goes on with its stream. */
static CUstream thread_stream(CUcontext context)
{
    static __thread char place;
    CUstream stream = context->thread_streams;

    while (stream && stream->thread != &place)
        stream = stream->next_of_thread;
    if (stream)
        return stream;
    stream = stream_make(context, engines_lane(context->engines));
    if (!stream)
        return NULL;
    stream->thread = &place;
    stream->next_of_thread = context->thread_streams;
    context->thread_streams = stream;
    return stream;
}

static struct entry enter_default(CUstream handle, CUstream *stream)
{
    CUcontext context;
    struct entry entry = enter_context(&context);

    if (entry.error)
        return entry;
    *stream = handle == CU_STREAM_PER_THREAD ? thread_stream(context) : context->legacy_stream;
    if (*stream)
        return entry;
    leave(&entry);
    return (struct entry){.error = CUDA_ERROR_OUT_OF_MEMORY};
}

static struct entry enter_made(CUstream handle, CUstream *stream)
{
    struct entry entry = enter();

    if (entry.error)
        return entry;
    *stream = (CUstream)object_find(handle, OBJECT_STREAM);
    if (*stream)
        return entry;
    leave(&entry);
    return (struct entry){.error = CUDA_ERROR_INVALID_HANDLE};
}

CUstream stream_hold(CUstream handle, CUresult *error)
{
    CUstream stream = NULL;
    bool is_default = !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    ENTRY entry = is_default ? enter_default(handle, &stream) : enter_made(handle, &stream);

    *error = entry.error;
    if (entry.error)
        return NULL;
    gate_pass();
    object_hold(&stream->object);
    return stream;
}

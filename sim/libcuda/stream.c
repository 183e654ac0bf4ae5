#include "stream.h"
#include "../../base/mutex.h"
#include "moves.h"
#include "ranges.h"
#include <stdlib.h>
#include <string.h>

static void stream_free(struct object *object)
{
    struct CUstream_st *stream = (struct CUstream_st *)object;

    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

CUstream stream_make(CUcontext context, unsigned int lane)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    stream->lane = lane;
    pthread_mutex_init(&stream->lock, NULL);
    object_add(&stream->object, OBJECT_STREAM, context, stream_free);
    return stream;
}

void stream_release(CUstream *stream)
{
    if (!*stream)
        return;
    object_release(&(*stream)->object);
    gate_leave();
}

static bool is_blocking(const struct CUstream_st *stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

enum sim_engine_index stream_engine(const struct CUstream_st *stream)
{
    mark_t last = __atomic_load_n(&stream->last, __ATOMIC_ACQUIRE);

    return last == NO_MARK ? SIM_ENGINE_GRAPHICS : (enum sim_engine_index)(((last >> 32) - 1) / LANES);
}

/* What is to be acquired before the next entry; what goes through the same channel is in order anyway. */
struct prologue {
    uint32_t count;
    struct sim_command commands[CHANNELS + 1];
};

static void wait_for(struct prologue *prologue, const struct channel *channel, mark_t mark)
{
    if (mark == NO_MARK || (mark >> 32) - 1 == channel->index)
        return;
    if (mark_acquire(channel->engines, mark, &prologue->commands[prologue->count]))
        prologue->count++;
}

static mark_t blocking_mark(struct engines *engines, uint32_t index)
{
    const struct channel *channel = engines_channel_at(engines, index);

    return channel ? __atomic_load_n(&channel->blocking, __ATOMIC_ACQUIRE) : NO_MARK;
}

/* Marks are of entries that are in their rings already, so that waits never make a circle. */
static void wait_for_others(struct prologue *prologue, const struct CUstream_st *stream,
                            const struct channel *channel)
{
    struct engines *engines = channel->engines;

    if (stream_is_legacy(stream))
        for (uint32_t i = 0; i < CHANNELS; i++)
            wait_for(prologue, channel, blocking_mark(engines, i));
    else if (is_blocking(stream))
        wait_for(prologue, channel, __atomic_load_n(&engines->legacy, __ATOMIC_ACQUIRE));
}

CUresult stream_submit_marked(CUstream stream, enum sim_engine_index engine, struct commands work,
                              mark_t *mark)
{
    struct engines *engines = engines_of(stream);
    struct prologue prologue = {0};
    CUresult error;
    struct channel *channel = engines_channel(engines, engine, stream->lane, &error);

    if (error)
        return error;
    LOCKED(&stream->lock);
    wait_for(&prologue, channel, stream->last);
    wait_for_others(&prologue, stream, channel);
    error = channel_submit(channel, (struct commands){prologue.commands, prologue.count}, work,
                           is_blocking(stream), mark);
    if (!error) {
        __atomic_store_n(&stream->last, *mark, __ATOMIC_RELEASE);
        if (stream_is_legacy(stream))
            __atomic_store_n(&engines->legacy, *mark, __ATOMIC_RELEASE);
    }
    return error;
}

CUresult stream_submit(CUstream stream, enum sim_engine_index engine, struct commands work)
{
    mark_t mark;

    return stream_submit_marked(stream, engine, work, &mark);
}

void work_settle(void)
{
    moves_settle();
    pools_settle();
}

CUresult stream_wait(CUstream stream)
{
    struct engines *engines = engines_of(stream);
    CUresult error = mark_wait(engines, __atomic_load_n(&stream->last, __ATOMIC_ACQUIRE));

    for (uint32_t i = 0; i < CHANNELS && stream_is_legacy(stream) && !error; i++)
        error = mark_wait(engines, blocking_mark(engines, i));
    if (!error)
        work_settle();
    return error;
}

bool stream_idle(CUstream stream)
{
    struct engines *engines = engines_of(stream);
    bool idle = mark_reached(engines, __atomic_load_n(&stream->last, __ATOMIC_ACQUIRE));

    for (uint32_t i = 0; i < CHANNELS && stream_is_legacy(stream) && idle; i++)
        idle = mark_reached(engines, blocking_mark(engines, i));
    if (idle)
        work_settle();
    return idle;
}

#include "../../base/mutex.h"
#include "stream.h"
#include <stdlib.h>

enum { NS_PER_MS = 1000 * 1000, EVENT_FLAGS = 3, RECORD_FLAGS = 1 };

struct CUevent_st {
    struct object object;
    unsigned int flags;
    pthread_mutex_t lock; /* of what follows, never held over a wait */
    struct slot *slot;    /* NULL: never recorded */
    uint32_t value;
};

static struct engines *engines_of_event(const struct CUevent_st *event)
{
    return event->object.context->engines;
}

static void event_free(struct object *object)
{
    struct CUevent_st *event = (struct CUevent_st *)object;

    if (event->slot)
        slot_give(engines_of_event(event), event->slot);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static void event_release(CUevent *event)
{
    if (!*event)
        return;
    object_release(&(*event)->object);
    gate_leave();
}
#define HELD_EVENT __attribute__((cleanup(event_release))) CUevent

static CUevent event_hold(CUevent handle, CUresult *error)
{
    struct object *object;
    ENTRY entry = enter();

    *error = entry.error;
    if (entry.error)
        return NULL;
    object = object_find(handle, OBJECT_EVENT);
    *error = object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (!object)
        return NULL;
    gate_pass();
    return (CUevent)object_hold(object);
}

/* One record of an event; recorded anew, the event gets another. */
struct record {
    struct slot *slot; /* NULL: never recorded, which counts as done */
    uint32_t value;
};

static struct record record_of(CUevent event)
{
    struct record record;

    LOCKED(&event->lock);
    record = (struct record){event->slot, event->value};
    return record;
}

static bool record_done(const struct record *record)
{
    return !record->slot || semaphore_reached(record->slot->semaphore, record->value);
}

/* An event whose context has not failed, and what was recorded in it last. */
static CUevent event_hold_recorded(CUevent handle, struct record *record, CUresult *error)
{
    CUevent event = event_hold(handle, error);

    if (!*error)
        *error = engines_error(engines_of_event(event));
    if (!*error)
        *record = record_of(event);
    return event;
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    struct CUevent_st *event;
    ENTER_CONTEXT(entry, context);

    if (flags & CU_EVENT_INTERPROCESS)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!out || flags & ~(unsigned int)EVENT_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->flags = flags;
    pthread_mutex_init(&event->lock, NULL);
    object_add(&event->object, OBJECT_EVENT, context, event_free);
    *out = event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    struct object *object;
    ENTER(entry, enter());

    object = object_find(handle, OBJECT_EVENT);
    if (!object)
        return CUDA_ERROR_INVALID_HANDLE;
    object_remove(object);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle)
{
    return cuEventDestroy_v2(handle);
}

/* Every record has a slot that no other is about to release: two records may complete in either order. */
CUresult cuEventRecord(CUevent handle, CUstream stream_handle)
{
    struct sim_command release = {.op = SIM_CMD_RELEASE};
    struct slot *slot, *before;
    uint32_t value;
    CUresult error;
    HELD_STREAM stream = stream_hold(stream_handle, &error);
    HELD_EVENT event = error ? NULL : event_hold(handle, &error);

    if (error)
        return error;
    if (event->object.context != stream->object.context)
        return CUDA_ERROR_INVALID_HANDLE;
    slot = slot_take(engines_of(stream), &error);
    if (error)
        return error;
    value = slot->issued;
    release.memory = slot->memory;
    release.a = slot->offset;
    release.b = value;
    error = stream_submit(stream, stream_engine(stream), (struct commands){&release, 1});
    if (error)
        return error; /* the context's last: the slot is not looked for again */
    pthread_mutex_lock(&event->lock);
    before = event->slot;
    event->slot = slot;
    event->value = value;
    pthread_mutex_unlock(&event->lock);
    if (before)
        slot_give(engines_of(stream), before);
    return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    return flags & ~(unsigned int)RECORD_FLAGS ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent handle)
{
    struct record record;
    CUresult error;
    HELD_EVENT event = event_hold_recorded(handle, &record, &error);

    if (error)
        return error;
    if (!record_done(&record))
        return CUDA_ERROR_NOT_READY;
    work_settle();
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent handle)
{
    struct record record;
    CUresult error;
    HELD_EVENT event = event_hold_recorded(handle, &record, &error);

    if (!error && record.slot)
        error = semaphore_wait(engines_of_event(event), record.slot->semaphore, record.value);
    if (!error)
        work_settle();
    return error;
}

/* When an event was recorded; with the lock of the event, under which its slot is its own. */
static CUresult time_of(CUevent event, uint64_t *timestamp_ns)
{
    CUresult error = CUDA_SUCCESS;

    if (event->flags & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    LOCKED(&event->lock);
    if (!event->slot)
        error = CUDA_ERROR_INVALID_HANDLE;
    else if (!semaphore_reached(event->slot->semaphore, event->value))
        error = CUDA_ERROR_NOT_READY;
    else
        *timestamp_ns = event->slot->semaphore->timestamp_ns;
    return error;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    uint64_t began_ns, ended_ns;
    CUresult error;
    HELD_EVENT start = event_hold(start_handle, &error);
    HELD_EVENT end = error ? NULL : event_hold(end_handle, &error);

    if (error)
        return error;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    error = time_of(start, &began_ns);
    if (!error)
        error = time_of(end, &ended_ns);
    if (!error)
        *milliseconds = (float)((double)(int64_t)(ended_ns - began_ns) / NS_PER_MS);
    return error;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime(milliseconds, start, end);
}

/* The event may be another context's: a semaphore is named by memory that is the process's. */
CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
    struct sim_command acquire = {.op = SIM_CMD_ACQUIRE};
    struct record record;
    CUresult error;
    HELD_STREAM stream = stream_hold(stream_handle, &error);
    HELD_EVENT event = error ? NULL : event_hold(handle, &error);

    if (!error)
        error = engines_error(engines_of(stream));
    if (error)
        return error;
    if (flags & ~(unsigned int)RECORD_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    record = record_of(event);
    if (record_done(&record))
        return CUDA_SUCCESS;
    acquire.memory = record.slot->memory;
    acquire.a = record.slot->offset;
    acquire.b = record.value;
    return stream_submit(stream, stream_engine(stream), (struct commands){&acquire, 1});
}

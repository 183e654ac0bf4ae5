/* Functions of the program's that run in the order of a stream: on a thread of the library's, one after the
 * other. Behind a function its stream goes on when it has returned. */
#include "../../base/mutex.h"
#include "moves.h"
#include "stream.h"
#include "thread.h"
#include <stdlib.h>

struct call {
    struct call *next;
    CUcontext context; /* held */
    struct slot *reached, *returned;
    uint32_t reached_value, returned_value;
    void (*function)(void *data);
    CUstreamCallback callback; /* the older kind, which is told of errors */
    CUstream stream;
    void *data;
};

/* Held over submitting, which may wait for the ring to have room: the thread that makes room does not take
 * it. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static struct call *first, **end = &first; /* in the order of submitting: no call waits for a later one */
static bool running;                       /* under `order` */
static bool busy;                          /* with a call that is not in the list any more */

static void run(struct call *call)
{
    struct engines *engines = call->context->engines;
    CUresult error = semaphore_wait(engines, call->reached->semaphore, call->reached_value);

    if (!error)
        error = engines_error(engines);
    if (!error)
        work_settle();
    if (call->callback)
        call->callback(call->stream, error, call->data);
    else if (!error)
        call->function(call->data);
    semaphore_set(call->returned->semaphore, call->returned_value);
    engines_ring(engines);
    slot_give(engines, call->reached);
    slot_give(engines, call->returned);
    context_release(call->context);
    free(call);
}

static void *work(void *unused)
{
    (void)unused;
    gate_exempt();
    for (;;) {
        struct call *call;

        pthread_mutex_lock(&lock);
        busy = false;
        while (!first)
            pthread_cond_wait(&asked, &lock);
        call = first;
        first = call->next;
        if (!first)
            end = &first;
        busy = true;
        pthread_mutex_unlock(&lock);
        run(call);
    }
    return NULL;
}

static bool start(void)
{
    if (!running)
        running = thread_start(work, NULL);
    return running;
}

bool host_functions_idle(void)
{
    LOCKED(&lock);
    return !first && !busy;
}

void host_functions_forget(void)
{
    pthread_mutex_init(&order, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&asked, NULL);
    first = NULL;
    end = &first;
    running = busy = false;
}

static CUresult submit(const struct call *call, CUstream stream)
{
    const struct sim_command commands[] = {
        {
            .op = SIM_CMD_RELEASE,
            .memory = call->reached->memory,
            .a = call->reached->offset,
            .b = call->reached_value,
        },
        {
            .op = SIM_CMD_ACQUIRE,
            .memory = call->returned->memory,
            .a = call->returned->offset,
            .b = call->returned_value,
        },
    };

    return stream_submit(stream, stream_engine(stream), (struct commands){commands, 2});
}

/* Nobody will release what was not submitted. */
static void give_unused(struct engines *engines, struct slot *slot, uint32_t value)
{
    if (!slot)
        return;
    semaphore_set(slot->semaphore, value);
    slot_give(engines, slot);
}

static void drop(struct call *call)
{
    give_unused(call->context->engines, call->reached, call->reached_value);
    give_unused(call->context->engines, call->returned, call->returned_value);
    context_release(call->context);
    free(call);
}

static void append(struct call *call)
{
    LOCKED(&lock);
    call->next = NULL;
    *end = call;
    end = &call->next;
    pthread_cond_signal(&asked);
}

static CUresult take_slots(struct call *call)
{
    struct engines *engines = call->context->engines;
    CUresult error;

    call->reached = slot_take(engines, &error);
    if (error)
        return error;
    call->reached_value = call->reached->issued;
    call->returned = slot_take(engines, &error);
    if (!error)
        call->returned_value = call->returned->issued;
    return error;
}

static CUresult enqueue(CUstream handle, const struct call *asked_for)
{
    struct call *call;
    CUresult error;
    HOLD_STREAM(stream, handle);

    call = malloc(sizeof *call);
    if (!call)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *call = *asked_for;
    call->context = context_hold(stream->object.context);
    error = take_slots(call);
    if (!error) {
        pthread_mutex_lock(&order);
        error = start() ? submit(call, stream) : CUDA_ERROR_OUT_OF_MEMORY;
        if (!error)
            append(call);
        pthread_mutex_unlock(&order);
    }
    if (error)
        drop(call);
    return error;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    struct call call = {.function = function, .data = data};

    return function ? enqueue(stream, &call) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    struct call call = {.callback = callback, .stream = stream, .data = data};

    return callback && !flags ? enqueue(stream, &call) : CUDA_ERROR_INVALID_VALUE;
}

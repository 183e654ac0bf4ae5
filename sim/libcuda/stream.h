/* What programs submit: streams, events, kernels, copies, graphs.
 *   stream.c  cuStream*, order between streams     default.c   handles that mean a default stream
 *   event.c   cuEvent*                             sync.c      cuCtxSynchronize, cuStreamSynchronize, …Query
 *   module.c  cuModule*, cuFunc*                   launch.c    cuLaunchKernel
 *   copy.c    cuMemcpy*, cuMemset*                 graph.c     cuGraph*
 *   per_thread.c  the forms for which a null stream is the thread's own */
#ifndef MGPU_SIM_CUDA_STREAM_H
#define MGPU_SIM_CUDA_STREAM_H
#include "engines.h"
#include "objects.h"

struct CUstream_st {
    struct object object;
    pthread_mutex_t
        lock;    /* of `last` changing: what is submitted is in one order; held while a ring is full */
    mark_t last; /* atomic */
    unsigned int flags, lane;
    int priority;
    const void *thread; /* of a thread's own default stream: whose; else NULL */
    CUstream next_of_thread;
};

static inline struct engines *engines_of(const struct CUstream_st *stream)
{
    return stream->object.context->engines;
}

/* Lock held. NULL: out of memory. */
CUstream stream_make(CUcontext context, unsigned int lane);
/* Holds the stream that a handle means. *error is set exactly when the answer is NULL. */
CUstream stream_hold(CUstream handle, CUresult *error);
void stream_release(CUstream *stream);
#define HELD_STREAM __attribute__((cleanup(stream_release))) CUstream

/* One ring entry behind everything that the stream must wait for; waits for room, so without the library's lock. */
CUresult stream_submit(CUstream stream, enum sim_engine_index engine, struct commands work);
/* The engine that the stream's last work is on: nothing is to be waited for there. */
enum sim_engine_index stream_engine(const struct CUstream_st *stream);
/* Until everything is done that the stream holds and, of the legacy stream, that it would wait for. */
CUresult stream_wait(CUstream stream);
bool stream_idle(CUstream stream);

/* module.c */
struct CUfunc_st;
/* Lock held. NULL when there is none. */
const struct CUfunc_st *function_find(CUfunction handle);
/* What a launch asks for: the shape is checked, of the parameters the first is all that matters. */
struct launch {
    unsigned int grid[3], block[3];
    void **params, **extra;
};
/* The command that a launch of the function comes to. */
CUresult function_command(const struct CUfunc_st *function, const struct launch *launch,
                          struct sim_command *command);
#endif

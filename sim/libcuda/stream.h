/* What programs submit: streams, events, kernels, copies, graphs.
 *   stream.c  order between streams               stream_call.c  cuStream*
 *   default.c   handles that mean a default stream
 *   event.c   cuEvent*                             sync.c      cuCtxSynchronize, cuStreamSynchronize, …Query
 *   module.c  cuModule*                            launch.c    cuLaunchKernel
 *   function.c  cuFunc*                            library.c   cuLibrary*, cuKernel*
 *   occupancy.c  cuOccupancy*
 *   copy.c    cuMemcpy*                            box.c       cuMemcpy2D*, cuMemcpy3D*
 *   fill.c    cuMemset*                            moves.h     their bytes
 *   place.c   what a pointer means to them         host_function.c  cuLaunchHostFunc, cuStreamAddCallback
 *   graph.c   cuGraph*                             capture.c   that no stream is recorded
 *   per_thread.c  the forms for which a null stream is the thread's own */
#ifndef MGPU_SIM_CUDA_STREAM_H
#define MGPU_SIM_CUDA_STREAM_H
#include "engines.h"
#include "objects.h"

struct CUstream_st {
    struct object object;
    /* Of `last` changing: what is submitted is in one order; held while a ring is full. */
    pthread_mutex_t lock;
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

static inline bool stream_is_legacy(const struct CUstream_st *stream)
{
    return stream->lane == LEGACY_LANE;
}

/* Lock held. NULL: out of memory. */
CUstream stream_make(CUcontext context, unsigned int lane);
/* Holds the stream that a handle means, in a passage of the gate. *error is set exactly when the answer is
 * NULL. */
CUstream stream_hold(CUstream handle, CUresult *error);
void stream_release(CUstream *stream);
#define HELD_STREAM __attribute__((cleanup(stream_release))) CUstream
/* Its function returns the error where the handle means no stream. */
#define HOLD_STREAM(stream, handle)                            \
    CUresult stream##_error;                                   \
    HELD_STREAM stream = stream_hold(handle, &stream##_error); \
    if (stream##_error)                                        \
    return stream##_error

/* One ring entry behind everything that the stream must wait for; waits for room, so without the library's
 * lock. */
CUresult stream_submit(CUstream stream, enum sim_engine_index engine, struct commands work);
/* The same; *mark is reached when the entry is done. */
CUresult stream_submit_marked(CUstream stream, enum sim_engine_index engine, struct commands work,
                              mark_t *mark);
/* Done once a thread has seen the card come to a point: bytes are moved, memory that streams have freed
 * goes back. */
void work_settle(void);
/* The engine that the stream's last work is on: nothing is to be waited for there. */
enum sim_engine_index stream_engine(const struct CUstream_st *stream);
/* Until everything is done that the stream holds and, of the legacy stream, that it would wait for. */
CUresult stream_wait(CUstream stream);
bool stream_idle(CUstream stream);

/* What a kernel takes that moves so many bytes through the card's memory. */
struct sim_command card_moves(CUstream stream, uint64_t bytes);

/* module.c, lock held. The context is NULL for what belongs to none. */
CUresult module_make(CUmodule *out, const void *image, CUcontext context);
struct CUfunc_st;
enum { MAX_THREADS_PER_BLOCK = 1024, FUNCTION_REGISTERS = 32 };
struct function_settings {
    int dynamic_shared; /* bytes, 0: as they come */
    int carveout;       /* per cent and one more, 0: as it comes */
};
struct function_settings *function_settings(CUfunction function);
/* function.c, lock held. */
CUresult function_attribute(int *value, int attribute, CUfunction function, const struct rmc_card *card);
CUresult function_set_attribute(CUfunction function, int attribute, int value, const struct rmc_card *card);
CUresult function_cache_config(CUfunction function, int config);
/* NULL when there is none. */
const struct CUfunc_st *function_find(CUfunction handle);
/* host_function.c: whether none runs and none waits for its stream. */
bool host_functions_idle(void);
/* In a forked child. */
void host_functions_forget(void);
/* What a launch asks for: the shape is checked, of the parameters the first is all that matters. */
struct launch {
    unsigned int grid[3], block[3];
    void **params, **extra;
};
/* The command that a launch of the function comes to. */
CUresult function_command(const struct CUfunc_st *function, const struct launch *launch,
                          struct sim_command *command);
#endif

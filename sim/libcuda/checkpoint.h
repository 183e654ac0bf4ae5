/* Process checkpoints: cuCheckpoint*. A process that has called cuInit has a thread for them, which takes
 * requests from a socket of its own. Callers find thread and socket below /proc and fetch the socket, which
 * needs the rights of a tracer: no name that a namespace could hide, and no signal.
 *   checkpoint_call.c    the caller's half      checkpoint_thread.c  states, and what leads to the next
 *   checkpoint_socket.c  requests               checkpoint_move.c    everything away and back
 *   saved.c              bytes of one object    gate.h               calls that wait meanwhile
 * A locked process has all submitted work done, and its calls wait. A checkpointed one has nothing of the
 * driver's: no file, no object, no memory of a card. Its addresses stay taken, its handles stay good. */
#ifndef MGPU_SIM_CUDA_CHECKPOINT_H
#define MGPU_SIM_CUDA_CHECKPOINT_H
#include "cuda.h"

enum checkpoint_op {
    CHECKPOINT_STATE,
    CHECKPOINT_LOCK,
    CHECKPOINT_CHECKPOINT,
    CHECKPOINT_RESTORE,
    CHECKPOINT_UNLOCK,
};

/* With one descriptor: a socket for the answer. Its hang-up takes back a request that is not done yet. */
struct checkpoint_request {
    uint32_t op, timeout_ms, pair_count;
    CUcheckpointGpuPair pairs[RM_MAX_CARDS];
};

struct checkpoint_reply {
    int32_t result;
    uint32_t state;
};

/* The thread's name; the number is of the socket. */
#define CHECKPOINT_THREAD "cuda-ckpt-%d"

/* checkpoint_thread.c. Once in a process; in vain where there can be no thread. */
void checkpoint_start(void);
/* In a forked child. */
void checkpoint_forget(void);

/* checkpoint_socket.c. */
bool requests_open(void);
void requests_close(void);
/* Waits. A question for the state gets that one until the request is answered. false: the socket is closed.
 */
bool request_next(struct checkpoint_request *request, CUprocessState state);
void request_answer(CUresult result, CUprocessState state);
/* This process's own socket, -1: none. */
int checkpoint_socket(void);
/* For a while at most, or until something comes. false: the caller has gone, and the request with it. */
bool checkpoint_linger(void);

/* checkpoint_move.c, of a locked process. After an error everything is where it was. */
CUresult checkpoint_away(void);
CUresult checkpoint_back(const CUcheckpointGpuPair *pairs, unsigned int count);

/* saved.c: what an object held, in memory of the process's own. Holes stay holes. */
struct saved;
CUresult saved_take(const struct rmc *rm, const struct rmc_card *card, uint32_t handle, uint64_t bytes,
                    struct saved **saved);
CUresult saved_put(const struct rmc *rm, const struct rmc_card *card, uint32_t handle, uint64_t bytes,
                   const struct saved *saved);
/* NULL too. */
void saved_free(struct saved *saved);
#endif

#include "../../base/clock.h"
#include "checkpoint.h"
#include "stream.h"
#include "thread.h"
#include <stdio.h>
#include <sys/prctl.h>

enum { NS_PER_MS = 1000 * 1000 };

static bool started;
static CUprocessState state;

void checkpoint_forget(void)
{
    requests_close();
    started = false;
    state = CU_PROCESS_STATE_RUNNING;
}

/* No call is under way, nothing submitted is left to do, and no function of the program's will run. */
static bool is_quiet(void)
{
    return gate_empty() && contexts_drained() && host_functions_idle();
}

static CUresult lock(uint32_t timeout_ms)
{
    int64_t end_ms = (int64_t)monotonic_ns() / NS_PER_MS + timeout_ms;

    gate_close();
    while (!is_quiet()) {
        if (!checkpoint_linger() || (timeout_ms && (int64_t)monotonic_ns() / NS_PER_MS >= end_ms)) {
            gate_open();
            return CUDA_ERROR_NOT_READY;
        }
    }
    work_settle();
    return CUDA_SUCCESS;
}

static CUresult unlock(void)
{
    gate_open();
    return CUDA_SUCCESS;
}

static CUresult serve(const struct checkpoint_request *request)
{
    static const struct {
        CUprocessState from, to;
    } steps[] = {
        [CHECKPOINT_LOCK] = {CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED},
        [CHECKPOINT_CHECKPOINT] = {CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED},
        [CHECKPOINT_RESTORE] = {CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED},
        [CHECKPOINT_UNLOCK] = {CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING},
    };
    CUresult result;

    if (request->op == CHECKPOINT_STATE)
        return CUDA_SUCCESS;
    if (request->op > CHECKPOINT_UNLOCK)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (state != steps[request->op].from)
        return CUDA_ERROR_ILLEGAL_STATE;
    result = request->op == CHECKPOINT_LOCK         ? lock(request->timeout_ms)
             : request->op == CHECKPOINT_CHECKPOINT ? checkpoint_away()
             : request->op == CHECKPOINT_RESTORE    ? checkpoint_back(request->pairs, request->pair_count)
                                                    : unlock();
    if (!result)
        state = steps[request->op].to;
    return result;
}

static void *work(void *unused)
{
    struct checkpoint_request request;

    (void)unused;
    gate_exempt();
    while (request_next(&request, state)) {
        CUresult result = serve(&request);

        request_answer(result, state);
    }
    return NULL;
}

void checkpoint_start(void)
{
    char name[16], own_name[16];

    if (started || !requests_open())
        return;
    /* It has its maker's name from its first moment, so that it is found once cuInit() has returned. */
    snprintf(name, sizeof name, CHECKPOINT_THREAD, checkpoint_socket());
    prctl(PR_GET_NAME, own_name);
    prctl(PR_SET_NAME, name);
    started = thread_start(work, NULL);
    prctl(PR_SET_NAME, own_name);
    if (!started)
        checkpoint_forget();
}

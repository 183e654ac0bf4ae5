/* Threads that use one another's streams, events and contexts at once, some of which end meanwhile. Prints "ok". Built
 * with the library's sources and sanitizers: what it looks for are their findings, and results that may not be. */
#include "../../sim/libcuda/cuda_api.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, STREAMS = 10, ROUNDS = 300, LIVES = 15 };

static const char ptx[] = ".version 6.0\n.visible .entry mgpu_spin(.param .u64 ns) { ret; }\n";

static struct {
    CUcontext context;
    CUfunction spin;
    CUstream streams[STREAMS];
    CUevent event;
} shared;

static void expect(CUresult result, const char *what)
{
    if (!result)
        return;
    printf("%s: %d\n", what, (int)result);
    exit(1);
}

static CUfunction load(void)
{
    CUmodule module;
    CUfunction function;

    expect(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    expect(cuModuleGetFunction(&function, module, "mgpu_spin"), "cuModuleGetFunction");
    return function;
}

static CUresult spin(CUfunction function, uint64_t ns, CUstream stream)
{
    void *params[] = {&ns};

    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void one_round(unsigned int *seed, CUevent own)
{
    CUstream stream = shared.streams[(unsigned int)rand_r(seed) % STREAMS];
    CUresult result;

    expect(spin(shared.spin, (uint64_t)(rand_r(seed) % 20000), stream), "cuLaunchKernel");
    switch (rand_r(seed) % 8) {
    case 0:
        expect(cuEventRecord(shared.event, stream), "cuEventRecord");
        break;
    case 1:
        expect(cuStreamWaitEvent(stream, shared.event, 0), "cuStreamWaitEvent");
        break;
    case 2:
        expect(cuEventRecord(own, stream), "cuEventRecord");
        expect(cuEventSynchronize(own), "cuEventSynchronize");
        break;
    case 3:
        expect(spin(shared.spin, 1000, NULL), "cuLaunchKernel");
        break;
    case 4:
        expect(spin(shared.spin, 1000, CU_STREAM_PER_THREAD), "cuLaunchKernel");
        break;
    case 5:
        result = cuStreamQuery(stream);
        expect(result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result, "cuStreamQuery");
        break;
    case 6:
        expect(cuStreamSynchronize(stream), "cuStreamSynchronize");
        break;
    default:
        result = cuEventQuery(shared.event);
        expect(result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result, "cuEventQuery");
    }
}

static void *work(void *argument)
{
    unsigned int seed = (unsigned int)(uintptr_t)argument;
    CUevent own;

    expect(cuCtxSetCurrent(shared.context), "cuCtxSetCurrent");
    expect(cuEventCreate(&own, 0), "cuEventCreate");
    for (int i = 0; i < ROUNDS; i++)
        one_round(&seed, own);
    expect(cuCtxSynchronize(), "cuCtxSynchronize");
    expect(cuEventDestroy_v2(own), "cuEventDestroy");
    return NULL;
}

/* What a thread may be told whose context ends under it. */
static int is_ended(CUresult result)
{
    return result == CUDA_SUCCESS || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT;
}

struct victim {
    CUcontext context;
    CUfunction spin;
    CUstream stream;
};

static void *use_victim(void *argument)
{
    struct victim *victim = argument;
    CUresult result = cuCtxSetCurrent(victim->context);

    for (int i = 0; i < ROUNDS && !result; i++) {
        result = spin(victim->spin, 5000000, victim->stream);
        if (!result)
            result = cuStreamSynchronize(victim->stream);
    }
    if (!is_ended(result))
        expect(result, "a context that ends");
    cuCtxSetCurrent(NULL);
    return NULL;
}

static void *make_victims(void *argument)
{
    (void)argument;
    for (int life = 0; life < LIVES; life++) {
        struct victim victim;
        pthread_t users[2];

        expect(cuCtxCreate_v2(&victim.context, 0, life % 2), "cuCtxCreate");
        victim.spin = load();
        expect(cuStreamCreate(&victim.stream, 0), "cuStreamCreate");
        for (int i = 0; i < 2; i++)
            pthread_create(&users[i], NULL, use_victim, &victim);
        expect(spin(victim.spin, 2000000, NULL), "cuLaunchKernel");
        expect(cuStreamSynchronize(NULL), "cuStreamSynchronize");
        expect(cuCtxDestroy_v2(victim.context), "cuCtxDestroy");
        for (int i = 0; i < 2; i++)
            pthread_join(users[i], NULL);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS], killer;

    expect(cuInit(0), "cuInit");
    expect(cuCtxCreate_v2(&shared.context, 0, 0), "cuCtxCreate");
    shared.spin = load();
    expect(cuEventCreate(&shared.event, 0), "cuEventCreate");
    for (unsigned int i = 0; i < STREAMS; i++)
        expect(cuStreamCreate(&shared.streams[i], i % 2), "cuStreamCreate");
    pthread_create(&killer, NULL, make_victims, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(killer, NULL);
    expect(cuCtxDestroy_v2(shared.context), "cuCtxDestroy");
    puts("ok");
    return 0;
}

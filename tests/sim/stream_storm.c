/* Threads that use one another's streams, events and contexts at once, some of which end meanwhile. Prints
 * "ok". Built with the library's sources and sanitizers: what it looks for are their findings, and results
 * that may not be. */
#include "../../sim/libcuda/cuda_api.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, STREAMS = 10, ROUNDS = 300, LIVES = 15, MOVES = 40, MOVED_BYTES = 64 << 10 };

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

/* Atomic for ThreadSanitizer alone: the card, between the call and who waits for the stream, is another
 * process. */
static void count_up(void *counter)
{
    __atomic_fetch_add((int *)counter, 1, __ATOMIC_RELEASE);
}

/* There, across the card and back, by memory of a pool, all of it in the order of one stream and looked at
 * after it. */
static void move_bytes(unsigned int *seed, unsigned char *host, CUstream stream)
{
    unsigned char fill = (unsigned char)rand_r(seed);
    CUdeviceptr one, two;
    int called = 0;

    expect(cuMemAllocAsync(&one, MOVED_BYTES, stream), "cuMemAllocAsync");
    expect(cuMemAlloc_v2(&two, MOVED_BYTES), "cuMemAlloc");
    memset(host, fill, MOVED_BYTES);
    expect(cuMemcpyHtoDAsync_v2(one, host, MOVED_BYTES, stream), "cuMemcpyHtoDAsync");
    expect(cuMemcpyDtoDAsync_v2(two, one, MOVED_BYTES / 2, stream), "cuMemcpyDtoDAsync");
    expect(cuMemsetD8Async(two + MOVED_BYTES / 2, (unsigned char)~fill, MOVED_BYTES / 2, stream),
           "cuMemsetD8Async");
    expect(cuMemFreeAsync(one, stream), "cuMemFreeAsync");
    expect(cuMemcpyDtoHAsync_v2(host, two, MOVED_BYTES, stream), "cuMemcpyDtoHAsync");
    expect(cuLaunchHostFunc(stream, count_up, &called), "cuLaunchHostFunc");
    expect(cuStreamSynchronize(stream), "cuStreamSynchronize");
    expect(cuMemFree_v2(two), "cuMemFree");
    if (__atomic_load_n(&called, __ATOMIC_ACQUIRE) == 1 && host[0] == fill &&
        host[MOVED_BYTES / 2 - 1] == fill && host[MOVED_BYTES / 2] == (unsigned char)~fill &&
        host[MOVED_BYTES - 1] == (unsigned char)~fill)
        return;
    printf("moved: called %d, %d %d of %d\n", called, host[0], host[MOVED_BYTES - 1], fill);
    exit(1);
}

static void *move(void *argument)
{
    unsigned int seed = (unsigned int)(uintptr_t)argument;
    unsigned char *host = malloc(MOVED_BYTES);

    expect(cuCtxSetCurrent(shared.context), "cuCtxSetCurrent");
    expect(cuMemHostRegister_v2(host, MOVED_BYTES, 0), "cuMemHostRegister");
    for (int i = 0; i < MOVES; i++)
        move_bytes(&seed, host, shared.streams[(unsigned int)rand_r(&seed) % STREAMS]);
    expect(cuMemHostUnregister(host), "cuMemHostUnregister");
    free(host);
    return NULL;
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
           result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT ||
           result == CUDA_ERROR_INVALID_VALUE; /* its memory is gone */
}

struct victim {
    CUcontext context;
    CUfunction spin;
    CUstream stream;
    CUdeviceptr memory;
};

static void *use_victim(void *argument)
{
    struct victim *victim = argument;
    CUresult result = cuCtxSetCurrent(victim->context);

    for (int i = 0; i < ROUNDS && !result; i++) {
        result = spin(victim->spin, 5000000, victim->stream);
        if (!result)
            result = cuMemsetD8Async(victim->memory, 1, MOVED_BYTES, victim->stream);
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
        expect(cuMemAlloc_v2(&victim.memory, MOVED_BYTES), "cuMemAlloc");
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
    pthread_t threads[THREADS], movers[THREADS / 2], killer;

    expect(cuInit(0), "cuInit");
    expect(cuCtxCreate_v2(&shared.context, 0, 0), "cuCtxCreate");
    shared.spin = load();
    expect(cuEventCreate(&shared.event, 0), "cuEventCreate");
    for (unsigned int i = 0; i < STREAMS; i++)
        expect(cuStreamCreate(&shared.streams[i], i % 2), "cuStreamCreate");
    pthread_create(&killer, NULL, make_victims, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (uintptr_t i = 0; i < THREADS / 2; i++)
        pthread_create(&movers[i], NULL, move, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS / 2; i++)
        pthread_join(movers[i], NULL);
    pthread_join(killer, NULL);
    expect(cuCtxDestroy_v2(shared.context), "cuCtxDestroy");
    puts("ok");
    return 0;
}

/* Allocates and frees all the time, and ends with the call's name at the first that fails.
 * Usage: steady THREADS. Prints "up", and for each line on stdin "calls N longest_us M" since the last. */
#include "cuda_driver.h"
#include "longest.h"
#include <pthread.h>

static void *context_of_all;

static void *work(void *arg)
{
    int (*set_current)(void *) = arg;
    CUdeviceptr p;

    cuda_must(set_current(context_of_all), "cuCtxSetCurrent");
    for (;;) {
        uint64_t since_us = monotonic_ns() / 1000;

        cuda_must(cuda.mem_alloc(&p, 1 << 20), "cuMemAlloc");
        called(since_us);
        since_us = monotonic_ns() / 1000;
        cuda_must(cuda.mem_free(p), "cuMemFree");
        called(since_us);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t thread;

    cuda_load();
    context_of_all = cuda_context();
    for (int i = 0; i < threads; i++)
        pthread_create(&thread, NULL, work, cuda_symbol(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent"));
    report();
    return 0;
}

/* Allocates and frees all the time, and ends with the call's name at the first that fails.
 * Usage: steady THREADS. Prints "up", and for each line on stdin "calls N longest_us M" since the last. */
#include "cuda_driver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static atomic_uint_least64_t calls, longest_us;
static void *context_of_all;

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void called(uint64_t since_us)
{
    uint64_t took_us = now_us() - since_us, longest = atomic_load(&longest_us);

    while (took_us > longest && !atomic_compare_exchange_weak(&longest_us, &longest, took_us))
        ;
    atomic_fetch_add(&calls, 1);
}

static void *work(void *arg)
{
    int (*set_current)(void *) = arg;
    CUdeviceptr p;

    cuda_must(set_current(context_of_all), "cuCtxSetCurrent");
    for (;;) {
        uint64_t since_us = now_us();

        cuda_must(cuda.mem_alloc(&p, 1 << 20), "cuMemAlloc");
        called(since_us);
        since_us = now_us();
        cuda_must(cuda.mem_free(p), "cuMemFree");
        called(since_us);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int device, threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t thread;
    char line[16];

    cuda_load();
    cuda_must(cuda.init(0), "cuInit");
    cuda_must(cuda.device_get(&device, 0), "cuDeviceGet");
    cuda_must(cuda.ctx_create(&context_of_all, 0, device), "cuCtxCreate");
    for (int i = 0; i < threads; i++)
        pthread_create(&thread, NULL, work, cuda_symbol(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent"));
    printf("up\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        printf("calls %llu longest_us %llu\n", (unsigned long long)atomic_exchange(&calls, 0),
               (unsigned long long)atomic_exchange(&longest_us, 0));
        fflush(stdout);
    }
    return 0;
}

/* The part of the CUDA driver API that the test programs use, found with dlopen as applications do. */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2 };
typedef uint64_t CUdeviceptr;

static struct {
    int (*init)(unsigned int flags);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*total_mem)(size_t *bytes, int device);
    int (*ctx_create)(void **ctx, unsigned int flags, int device);
    int (*ctx_destroy)(void *ctx);
    int (*mem_info)(size_t *free_bytes, size_t *total_bytes);
    int (*mem_alloc)(CUdeviceptr *ptr, size_t bytes);
    int (*mem_free)(CUdeviceptr ptr);
} cuda;

static inline void *cuda_symbol(void *lib, const char *name)
{
    void *p = dlsym(lib, name);

    if (!p) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(3);
    }
    return p;
}

static inline void cuda_load(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);

    if (!lib) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    *(void **)&cuda.init = cuda_symbol(lib, "cuInit");
    *(void **)&cuda.device_count = cuda_symbol(lib, "cuDeviceGetCount");
    *(void **)&cuda.device_get = cuda_symbol(lib, "cuDeviceGet");
    *(void **)&cuda.total_mem = cuda_symbol(lib, "cuDeviceTotalMem_v2");
    *(void **)&cuda.ctx_create = cuda_symbol(lib, "cuCtxCreate_v2");
    *(void **)&cuda.ctx_destroy = cuda_symbol(lib, "cuCtxDestroy_v2");
    *(void **)&cuda.mem_info = cuda_symbol(lib, "cuMemGetInfo_v2");
    *(void **)&cuda.mem_alloc = cuda_symbol(lib, "cuMemAlloc_v2");
    *(void **)&cuda.mem_free = cuda_symbol(lib, "cuMemFree_v2");
}

/* Ends the program with the call's name when it did not succeed. */
static inline void cuda_must(int result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(3);
}

/* A new context on the first card, this thread's current one. */
static inline void *cuda_context(void)
{
    void *context;
    int device;

    cuda_must(cuda.init(0), "cuInit");
    cuda_must(cuda.device_get(&device, 0), "cuDeviceGet");
    cuda_must(cuda.ctx_create(&context, 0, device), "cuCtxCreate");
    return context;
}
#endif

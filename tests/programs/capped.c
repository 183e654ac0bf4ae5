/* What an application sees of its cap, as one JSON object. Usage: capped
 *
 * Per card: total and free bytes, the error of allocating one byte more than is free, whether exactly what is
 * free can be had in pages of 2 MiB, the driver's for memory of that size, and whether the process goes on
 * after a refusal. */
#include "cuda_driver.h"

enum { PAGE_BYTES = 2 << 20 };

int main(void)
{
    int count, device, over, exact, after;
    size_t total, free_bytes, total_bytes;
    CUdeviceptr p;
    void *ctx;

    cuda_load();
    cuda_must(cuda.init(0), "cuInit");
    cuda_must(cuda.device_count(&count), "cuDeviceGetCount");
    printf("[");
    for (int i = 0; i < count; i++) {
        cuda_must(cuda.device_get(&device, i), "cuDeviceGet");
        cuda_must(cuda.total_mem(&total, device), "cuDeviceTotalMem");
        cuda_must(cuda.ctx_create(&ctx, 0, device), "cuCtxCreate");
        cuda_must(cuda.mem_info(&free_bytes, &total_bytes), "cuMemGetInfo");
        over = cuda.mem_alloc(&p, total + 1);
        if (over == CUDA_SUCCESS)
            cuda_must(cuda.mem_free(p), "cuMemFree");
        if (cuda.mem_alloc(&p, free_bytes + 1) == CUDA_SUCCESS)
            over = -1;
        exact = cuda.mem_alloc(&p, free_bytes / PAGE_BYTES * PAGE_BYTES);
        if (exact == CUDA_SUCCESS)
            cuda_must(cuda.mem_free(p), "cuMemFree");
        after = cuda.mem_alloc(&p, 1 << 20);
        printf(
            "%s{\"total_bytes\": %zu, \"info_total_bytes\": %zu, \"free_bytes\": %zu, \"over\": %d, \"exact\": %d, "
            "\"after\": %d}",
            i ? ", " : "", total, total_bytes, free_bytes, over, exact, after);
        cuda_must(cuda.ctx_destroy(ctx), "cuCtxDestroy");
    }
    printf("]\n");
    return 0;
}

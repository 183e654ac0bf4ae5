#include "cuda.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct cuda_api cuda;

static const struct symbol {
    const char *name;
    void *at;
} symbols[] = {
    {"cuInit", &cuda.init},
    {"cuGetErrorName", &cuda.error_name},
    {"cuGetErrorString", &cuda.error_string},
    {"cuDeviceGetCount", &cuda.device_count},
    {"cuDeviceGet", &cuda.device_get},
    {"cuCtxCreate_v2", &cuda.context_create},
    {"cuCtxDestroy_v2", &cuda.context_destroy},
    {"cuCtxSetCurrent", &cuda.context_set_current},
    {"cuModuleLoadData", &cuda.module_load},
    {"cuModuleGetFunction", &cuda.module_function},
    {"cuLaunchKernel", &cuda.launch},
    {"cuStreamCreate", &cuda.stream_create},
    {"cuEventCreate", &cuda.event_create},
    {"cuEventRecord", &cuda.event_record},
    {"cuEventQuery", &cuda.event_query},
    {"cuEventSynchronize", &cuda.event_synchronize},
    {"cuEventElapsedTime", &cuda.event_elapsed},
    {"cuMemAlloc_v2", &cuda.memory_alloc},
    {"cuMemFree_v2", &cuda.memory_free},
};

void cuda_load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    if (!library) {
        fprintf(stderr, "mgpu-load: no CUDA driver: %s\n", dlerror());
        exit(STATUS_FAILED);
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);

        if (!found) {
            fprintf(stderr, "mgpu-load: the CUDA driver has no %s\n", symbols[i].name);
            exit(STATUS_FAILED);
        }
        *(void **)symbols[i].at = found;
    }
    cuda_must(cuda.init(0), "cuInit");
}

const char *cuda_name(int error)
{
    const char *name = NULL;

    return cuda.error_name(error, &name) || !name ? "CUDA error" : name;
}

const char *cuda_text(int error)
{
    const char *text = NULL;

    return cuda.error_string(error, &text) || !text ? "no text" : text;
}

void cuda_must(int error, const char *call)
{
    if (!error)
        return;
    fprintf(stderr, "mgpu-load: %s: %s (%d): %s\n", call, cuda_name(error), error, cuda_text(error));
    _Exit(STATUS_FAILED);
}

cuda_handle cuda_context(int device)
{
    cuda_handle context;
    int count, handle;

    cuda_must(cuda.device_count(&count), "cuDeviceGetCount");
    if (device >= count) {
        fprintf(stderr, "mgpu-load: there is no device %d: the driver has %d\n", device, count);
        _Exit(STATUS_FAILED);
    }
    cuda_must(cuda.device_get(&handle, device), "cuDeviceGet");
    cuda_must(cuda.context_create(&context, 0, handle), "cuCtxCreate");
    return context;
}

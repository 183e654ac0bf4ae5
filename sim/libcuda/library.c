/* A library is a module that no context owns; a kernel of its runs in every context. */
#include "stream.h"

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *options, void **values,
                           unsigned int count, int *library_options, void **library_values,
                           unsigned int library_count)
{
    ENTRY entry = enter();

    (void)options;
    (void)values;
    (void)count;
    (void)library_options;
    (void)library_values;
    (void)library_count;
    if (entry.error)
        return entry.error;
    return module_make((CUmodule *)library, image, NULL);
}

static CUresult check_library(CUlibrary handle)
{
    const struct object *object;
    ENTER(entry, enter());

    object = object_find(handle, OBJECT_MODULE);
    return object && !object->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult error = check_library(library);

    return error ? error : cuModuleUnload((CUmodule)library);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    CUresult error = check_library(library);

    return error ? error : cuModuleGetFunction((CUfunction *)kernel, (CUmodule)library, name);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    CUresult error = module ? check_library(library) : CUDA_ERROR_INVALID_VALUE;

    if (!error)
        *module = (CUmodule)library;
    return error;
}

/* Kernels have no variables. */
CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
    CUresult error = check_library(library);

    return error ? error : cuModuleGetGlobal_v2(pointer, bytes, (CUmodule)library, name);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    ENTER(entry, enter());

    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function_find((CUfunction)kernel))
        return CUDA_ERROR_INVALID_HANDLE;
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    return cuFuncGetName(name, (CUfunction)kernel);
}

CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device)
{
    ENTER(entry, enter_device(device));

    return function_attribute(value, attribute, (CUfunction)kernel, entry.device->card);
}

CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device)
{
    ENTER(entry, enter_device(device));

    return function_set_attribute((CUfunction)kernel, attribute, value, entry.device->card);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device)
{
    ENTER(entry, enter_device(device));

    return function_cache_config((CUfunction)kernel, config);
}

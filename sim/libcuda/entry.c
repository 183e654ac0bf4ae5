#include "cuda.h"
#include <string.h>

/* By base name and the CUDA version that a form came with; of one name the newest that the caller knows. */
static const struct symbol {
    const char *name;
    int since;
    void *function;
    void *per_thread; /* the form for which a null stream is the thread's own; NULL: takes no stream */
} symbols[] = {
    {"cuInit", 2000, cuInit, NULL},
    {"cuDriverGetVersion", 2020, cuDriverGetVersion, NULL},
    {"cuGetErrorName", 6000, cuGetErrorName, NULL},
    {"cuGetErrorString", 6000, cuGetErrorString, NULL},
    {"cuGetProcAddress", 11030, cuGetProcAddress, NULL},
    {"cuGetProcAddress", 12000, cuGetProcAddress_v2, NULL},
    {"cuDeviceGet", 2000, cuDeviceGet, NULL},
    {"cuDeviceGetCount", 2000, cuDeviceGetCount, NULL},
    {"cuDeviceGetName", 2000, cuDeviceGetName, NULL},
    {"cuDeviceGetUuid", 9020, cuDeviceGetUuid, NULL},
    {"cuDeviceGetUuid", 11040, cuDeviceGetUuid_v2, NULL},
    {"cuDeviceTotalMem", 2000, cuDeviceTotalMem, NULL},
    {"cuDeviceTotalMem", 3020, cuDeviceTotalMem_v2, NULL},
    {"cuDeviceGetAttribute", 2000, cuDeviceGetAttribute, NULL},
    {"cuDeviceComputeCapability", 2000, cuDeviceComputeCapability, NULL},
    {"cuDeviceGetByPCIBusId", 4010, cuDeviceGetByPCIBusId, NULL},
    {"cuDeviceGetPCIBusId", 4010, cuDeviceGetPCIBusId, NULL},
    {"cuDevicePrimaryCtxRetain", 7000, cuDevicePrimaryCtxRetain, NULL},
    {"cuDevicePrimaryCtxRelease", 7000, cuDevicePrimaryCtxRelease, NULL},
    {"cuDevicePrimaryCtxRelease", 11000, cuDevicePrimaryCtxRelease_v2, NULL},
    {"cuDevicePrimaryCtxReset", 7000, cuDevicePrimaryCtxReset, NULL},
    {"cuDevicePrimaryCtxReset", 11000, cuDevicePrimaryCtxReset_v2, NULL},
    {"cuDevicePrimaryCtxSetFlags", 7000, cuDevicePrimaryCtxSetFlags, NULL},
    {"cuDevicePrimaryCtxSetFlags", 11000, cuDevicePrimaryCtxSetFlags_v2, NULL},
    {"cuDevicePrimaryCtxGetState", 7000, cuDevicePrimaryCtxGetState, NULL},
    {"cuCtxCreate", 2000, cuCtxCreate, NULL},
    {"cuCtxCreate", 3020, cuCtxCreate_v2, NULL},
    {"cuCtxCreate", 11040, cuCtxCreate_v3, NULL},
    {"cuCtxCreate", 12050, cuCtxCreate_v4, NULL},
    {"cuCtxDestroy", 2000, cuCtxDestroy, NULL},
    {"cuCtxDestroy", 4000, cuCtxDestroy_v2, NULL},
    {"cuCtxSetCurrent", 4000, cuCtxSetCurrent, NULL},
    {"cuCtxGetCurrent", 4000, cuCtxGetCurrent, NULL},
    {"cuCtxPushCurrent", 2000, cuCtxPushCurrent, NULL},
    {"cuCtxPushCurrent", 4000, cuCtxPushCurrent_v2, NULL},
    {"cuCtxPopCurrent", 2000, cuCtxPopCurrent, NULL},
    {"cuCtxPopCurrent", 4000, cuCtxPopCurrent_v2, NULL},
    {"cuCtxGetDevice", 2000, cuCtxGetDevice, NULL},
    {"cuCtxGetFlags", 7000, cuCtxGetFlags, NULL},
    {"cuCtxGetApiVersion", 3020, cuCtxGetApiVersion, NULL},
    {"cuCtxSynchronize", 2000, cuCtxSynchronize, NULL},
    {"cuMemGetInfo", 2000, cuMemGetInfo, NULL},
    {"cuMemGetInfo", 3020, cuMemGetInfo_v2, NULL},
    {"cuMemAlloc", 2000, cuMemAlloc, NULL},
    {"cuMemAlloc", 3020, cuMemAlloc_v2, NULL},
    {"cuMemFree", 2000, cuMemFree, NULL},
    {"cuMemFree", 3020, cuMemFree_v2, NULL},
    {"cuMemGetAddressRange", 2000, cuMemGetAddressRange, NULL},
    {"cuMemGetAddressRange", 3020, cuMemGetAddressRange_v2, NULL},
    {"cuMemGetAllocationGranularity", 10020, cuMemGetAllocationGranularity, NULL},
    {"cuMemCreate", 10020, cuMemCreate, NULL},
    {"cuMemRelease", 10020, cuMemRelease, NULL},
    {"cuMemExportToShareableHandle", 10020, cuMemExportToShareableHandle, NULL},
    {"cuMemImportFromShareableHandle", 10020, cuMemImportFromShareableHandle, NULL},
    {"cuIpcGetMemHandle", 4010, cuIpcGetMemHandle, NULL},
    {"cuIpcOpenMemHandle", 4010, cuIpcOpenMemHandle, NULL},
    {"cuIpcOpenMemHandle", 11000, cuIpcOpenMemHandle_v2, NULL},
    {"cuIpcCloseMemHandle", 4010, cuIpcCloseMemHandle, NULL},
    {"cuCtxGetStreamPriorityRange", 5050, cuCtxGetStreamPriorityRange, NULL},
    {"cuStreamCreate", 2000, cuStreamCreate, NULL},
    {"cuStreamCreateWithPriority", 5050, cuStreamCreateWithPriority, NULL},
    {"cuStreamDestroy", 2000, cuStreamDestroy, NULL},
    {"cuStreamDestroy", 4000, cuStreamDestroy_v2, NULL},
    {"cuStreamSynchronize", 2000, cuStreamSynchronize, cuStreamSynchronize_ptsz},
    {"cuStreamQuery", 2000, cuStreamQuery, cuStreamQuery_ptsz},
    {"cuStreamWaitEvent", 3020, cuStreamWaitEvent, cuStreamWaitEvent_ptsz},
    {"cuStreamGetFlags", 5050, cuStreamGetFlags, cuStreamGetFlags_ptsz},
    {"cuStreamGetPriority", 5050, cuStreamGetPriority, cuStreamGetPriority_ptsz},
    {"cuStreamGetCtx", 9020, cuStreamGetCtx, cuStreamGetCtx_ptsz},
    {"cuEventCreate", 2000, cuEventCreate, NULL},
    {"cuEventDestroy", 2000, cuEventDestroy, NULL},
    {"cuEventDestroy", 4000, cuEventDestroy_v2, NULL},
    {"cuEventRecord", 2000, cuEventRecord, cuEventRecord_ptsz},
    {"cuEventRecordWithFlags", 11010, cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz},
    {"cuEventQuery", 2000, cuEventQuery, NULL},
    {"cuEventSynchronize", 2000, cuEventSynchronize, NULL},
    {"cuEventElapsedTime", 2000, cuEventElapsedTime, NULL},
    {"cuEventElapsedTime", 12080, cuEventElapsedTime_v2, NULL},
    {"cuModuleLoadData", 2000, cuModuleLoadData, NULL},
    {"cuModuleLoadDataEx", 2010, cuModuleLoadDataEx, NULL},
    {"cuModuleUnload", 2000, cuModuleUnload, NULL},
    {"cuModuleGetFunction", 2000, cuModuleGetFunction, NULL},
    {"cuFuncGetAttribute", 2020, cuFuncGetAttribute, NULL},
    {"cuLaunchKernel", 4000, cuLaunchKernel, cuLaunchKernel_ptsz},
    {"cuMemcpyHtoD", 2000, cuMemcpyHtoD, NULL},
    {"cuMemcpyHtoD", 3020, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds},
    {"cuMemcpyHtoDAsync", 2000, cuMemcpyHtoDAsync, NULL},
    {"cuMemcpyHtoDAsync", 3020, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz},
    {"cuMemcpyDtoH", 2000, cuMemcpyDtoH, NULL},
    {"cuMemcpyDtoH", 3020, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds},
    {"cuMemcpyDtoHAsync", 2000, cuMemcpyDtoHAsync, NULL},
    {"cuMemcpyDtoHAsync", 3020, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz},
    {"cuMemcpyDtoD", 2000, cuMemcpyDtoD, NULL},
    {"cuMemcpyDtoD", 3020, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds},
    {"cuMemcpyDtoDAsync", 2000, cuMemcpyDtoDAsync, NULL},
    {"cuMemcpyDtoDAsync", 3020, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz},
    {"cuMemsetD8", 2000, cuMemsetD8, NULL},
    {"cuMemsetD8", 3020, cuMemsetD8_v2, cuMemsetD8_v2_ptds},
    {"cuMemsetD8Async", 3020, cuMemsetD8Async, cuMemsetD8Async_ptsz},
    {"cuMemsetD32", 2000, cuMemsetD32, NULL},
    {"cuMemsetD32", 3020, cuMemsetD32_v2, cuMemsetD32_v2_ptds},
    {"cuMemsetD32Async", 3020, cuMemsetD32Async, cuMemsetD32Async_ptsz},
    {"cuGraphCreate", 10000, cuGraphCreate, NULL},
    {"cuGraphDestroy", 10000, cuGraphDestroy, NULL},
    {"cuGraphAddKernelNode", 10000, cuGraphAddKernelNode, NULL},
    {"cuGraphAddKernelNode", 12000, cuGraphAddKernelNode_v2, NULL},
    {"cuGraphInstantiate", 10000, cuGraphInstantiate, NULL},
    {"cuGraphInstantiate", 11000, cuGraphInstantiate_v2, NULL},
    {"cuGraphInstantiate", 12000, cuGraphInstantiateWithFlags, NULL},
    {"cuGraphInstantiateWithFlags", 11040, cuGraphInstantiateWithFlags, NULL},
    {"cuGraphLaunch", 10000, cuGraphLaunch, cuGraphLaunch_ptsz},
    {"cuGraphExecDestroy", 10000, cuGraphExecDestroy, NULL},
};

CUresult cuGetProcAddress_v2(const char *name, void **function, int cuda_version, uint64_t flags,
                             CUdriverProcAddressQueryResult *found)
{
    CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    int best = 0;

    if (!name || !function)
        return CUDA_ERROR_INVALID_VALUE;
    *function = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        if (strcmp(symbols[i].name, name))
            continue;
        if (symbols[i].since > cuda_version) {
            if (!best)
                result = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        } else if (symbols[i].since > best) {
            best = symbols[i].since;
            *function = symbols[i].function;
            if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && symbols[i].per_thread)
                *function = symbols[i].per_thread;
            result = CU_GET_PROC_ADDRESS_SUCCESS;
        }
    }
    if (found)
        *found = result;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *name, void **function, int cuda_version, uint64_t flags)
{
    CUresult result = cuGetProcAddress_v2(name, function, cuda_version, flags, NULL);

    return !result && !*function ? CUDA_ERROR_NOT_FOUND : result;
}

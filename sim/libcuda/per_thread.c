#include "cuda_api.h"

static CUstream own(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* The function of that name, of a thread's own stream where it is given none. */
#define OWN(name, parameters, ...)  \
    CUresult name##_ptsz parameters \
    {                               \
        return name(__VA_ARGS__);   \
    }
OWN(cuStreamSynchronize, (CUstream stream), own(stream))
OWN(cuStreamQuery, (CUstream stream), own(stream))
OWN(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), own(stream), event, flags)
OWN(cuStreamGetFlags, (CUstream stream, unsigned int *flags), own(stream), flags)
OWN(cuStreamGetPriority, (CUstream stream, int *priority), own(stream), priority)
OWN(cuStreamGetCtx, (CUstream stream, CUcontext *context), own(stream), context)
OWN(cuEventRecord, (CUevent event, CUstream stream), event, own(stream))
OWN(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags), event, own(stream), flags)
OWN(cuLaunchKernel,
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params,
     void **extra),
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, own(stream), params, extra)
OWN(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), to, from, bytes,
    own(stream))
OWN(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes,
    own(stream))
OWN(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes,
    own(stream))
OWN(cuGraphLaunch, (CUgraphExec exec, CUstream stream), exec, own(stream))
OWN(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes,
    own(stream))
OWN(cuMemcpyPeerAsync,
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
     CUstream stream),
    to, to_context, from, from_context, bytes, own(stream))
OWN(cuMemPrefetchAsync, (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream), pointer, bytes,
    device, own(stream))
OWN(cuMemPrefetchAsync_v2,
    (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream), pointer,
    bytes, location, flags, own(stream))
OWN(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned int flags),
    own(stream), pointer, bytes, flags)
OWN(cuStreamGetId, (CUstream stream, unsigned long long *id), own(stream), id)
OWN(cuStreamGetDevice, (CUstream stream, CUdevice *device), own(stream), device)
OWN(cuStreamIsCapturing, (CUstream stream, int *status), own(stream), status)
OWN(cuStreamGetCaptureInfo, (CUstream stream, int *status, uint64_t *id), own(stream), status, id)
OWN(cuStreamGetCaptureInfo_v2,
    (CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *count),
    own(stream), status, id, graph, nodes, count)
OWN(cuStreamBeginCapture_v2, (CUstream stream, int mode), own(stream), mode)
OWN(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), own(stream), function, data)
OWN(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags),
    own(stream), callback, data, flags)
OWN(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream), pointer, bytes, own(stream))
OWN(cuMemAllocFromPoolAsync, (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
    pointer, bytes, pool, own(stream))
OWN(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), pointer, own(stream))
OWN(cuLaunchCooperativeKernel,
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params),
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, own(stream), params)

/* What the library answers of memory besides allocating and copying it in a line. */
#ifndef MGPU_SIM_CUDA_MEMORY_API_H
#define MGPU_SIM_CUDA_MEMORY_API_H
#include "cuda_types.h"

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *params);

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes, CUstream stream);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      size_t bytes);

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);
CUresult cuMemAllocHost(void **pointer, size_t bytes);
CUresult cuMemFreeHost(void *pointer);
CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags);
CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags);
CUresult cuMemHostUnregister(void *pointer);
CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned int flags);
CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *pointer, unsigned int flags);

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event);
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle);

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags);
CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags,
                               CUstream handle);
CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream);
CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location);
CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device);
CUresult cuMemRangeGetAttribute(void *data, size_t data_bytes, int attribute, CUdeviceptr pointer,
                                size_t bytes);
CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, int *attributes, size_t count,
                                 CUdeviceptr pointer, size_t bytes);
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t bytes, unsigned int flags);

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes);

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle);

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer);
CUresult cuPointerGetAttributes(unsigned int count, const int *attributes, void **data, CUdeviceptr pointer);
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr pointer);

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream handle);
CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle);

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle);
CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props);
CUresult cuMemPoolDestroy(CUmemoryPool handle);
CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep);
CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value);
CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value);
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *descriptions, size_t count);
CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool handle, const CUmemLocation *location);

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes);
CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr base, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *descriptions, size_t count);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address);

/* fill.c */
#define CUDA_FILLS(bits, type)                                                                               \
    CUresult cuMemsetD##bits(CUdeviceptr to, type value, size_t count);                                      \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count);                                 \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count);                            \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream);              \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream);         \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height);  \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,             \
                                         size_t height);                                                     \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, \
                                      CUstream stream);                                                      \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width,           \
                                           size_t height, CUstream stream);
CUDA_FILLS(8, unsigned char)
CUDA_FILLS(16, unsigned short)
CUDA_FILLS(32, unsigned int)
#undef CUDA_FILLS

/* box.c */
#define CUDA_BOXES(dimensions)                                                                       \
    CUresult cuMemcpy##dimensions##_v2(const CUDA_MEMCPY##dimensions *params);                       \
    CUresult cuMemcpy##dimensions##_v2_ptds(const CUDA_MEMCPY##dimensions *params);                  \
    CUresult cuMemcpy##dimensions##Async_v2(const CUDA_MEMCPY##dimensions *params, CUstream stream); \
    CUresult cuMemcpy##dimensions##Async_v2_ptsz(const CUDA_MEMCPY##dimensions *params, CUstream stream);
CUDA_BOXES(2D)
CUDA_BOXES(3D)
#undef CUDA_BOXES

/* A null stream means the thread's own. */
CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *params);

CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status);
CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, int *status, uint64_t *id);
CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                        const CUgraphNode **nodes, size_t *count);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode);

CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes);

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data);
CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags);

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                        void **params);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra);

CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, size_t bytes, CUstream stream);
CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream);
CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t bytes, CUmemLocation location,
                                    unsigned int flags, CUstream stream);
CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned int flags);
CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *id);
CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice *device);

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream);
#endif

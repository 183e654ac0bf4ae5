/* Streams are never recorded into graphs: nothing is being captured, and nothing can be. */
#include "stream.h"

enum { CAPTURE_NONE = 0, CAPTURE_MODES = 3 };

CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
    HOLD_STREAM(stream, handle);

    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = CAPTURE_NONE;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id)
{
    CUresult error = cuStreamIsCapturing(stream, status);

    if (!error && id)
        *id = 0;
    return error;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                   const CUgraphNode **nodes, size_t *count)
{
    CUresult error = cuStreamGetCaptureInfo(stream, status, id);

    if (error)
        return error;
    if (graph)
        *graph = NULL;
    if (nodes)
        *nodes = NULL;
    if (count)
        *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    HOLD_STREAM(stream, handle);

    return mode < 0 || mode >= CAPTURE_MODES ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    static __thread int current;
    int wanted;

    if (!mode || *mode < 0 || *mode >= CAPTURE_MODES)
        return CUDA_ERROR_INVALID_VALUE;
    wanted = *mode;
    *mode = current;
    current = wanted;
    return CUDA_SUCCESS;
}

/* The simulated card has peers for who asks RM and nvidia-uvm, as tinygrad does; this library does not ask,
 * and says everywhere that there are none. */
#include "cuda.h"

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    ENTER(entry, enter_device(device));

    if (!device_at(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    *can = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice device, CUdevice peer)
{
    enum { FIRST = 1, LAST = 4 };
    ENTER(entry, enter_device(device));

    if (!device_at(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || attribute < FIRST || attribute > LAST || device == peer)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    ENTER_CONTEXT(entry, context);

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return context_live(peer) && peer != context ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
                                                 : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    ENTER_CONTEXT(entry, context);

    return context_live(peer) ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_ERROR_INVALID_CONTEXT;
}

/* Contexts that reach the memory of another card's: what RM says of two cards is the answer, and NV50_P2P and
 * nvidia-uvm make it true (reach.c). */
#include "access.h"
#include "ranges.h"

static CUresult caps_between(const struct rmc *rm, const struct device *one, const struct device *other,
                             uint32_t *caps)
{
    *caps = 0;
    return one == other ? CUDA_SUCCESS : from_rm(rmc_peers(rm, one->card, other->card, caps));
}

static bool can_access(uint32_t caps)
{
    return caps & RMC_PEER_READS && caps & RMC_PEER_WRITES;
}

bool devices_are_peers(const struct rmc *rm, const struct device *one, const struct device *other)
{
    uint32_t caps;

    return !caps_between(rm, one, other, &caps) && can_access(caps);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    uint32_t caps;
    CUresult result;
    ENTER(entry, enter_device(device));

    if (!device_at(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    result = caps_between(entry.rm, entry.device, device_at(peer), &caps);
    *can = can_access(caps);
    return result;
}

/* All peers are alike: none is nearer than another. */
CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice device, CUdevice peer)
{
    enum { PERFORMANCE_RANK = 1, ACCESS, NATIVE_ATOMICS, ARRAY_ACCESS };
    uint32_t caps;
    CUresult result;
    ENTER(entry, enter_device(device));

    if (!device_at(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || attribute < PERFORMANCE_RANK || attribute > ARRAY_ACCESS || device == peer)
        return CUDA_ERROR_INVALID_VALUE;
    result = caps_between(entry.rm, entry.device, device_at(peer), &caps);
    *value = attribute == PERFORMANCE_RANK ? 0
             : attribute == NATIVE_ATOMICS ? (caps & RMC_PEER_ATOMICS) != 0
                                           : can_access(caps);
    return result;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUresult result;
    ENTER_CONTEXT(entry, context);

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_live(peer) || peer == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!devices_are_peers(entry.rm, context->device, peer->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (access_exists(context, peer))
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (!access_add(context, peer))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = reach_pair(entry.rm, context->device->card, peer->device->card);
    if (!result)
        result = reach_all(entry.rm);
    if (result) {
        access_remove(context, peer);
        reach_all(entry.rm);
    }
    return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    ENTER_CONTEXT(entry, context);

    if (!context_live(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!access_exists(context, peer))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    access_remove(context, peer);
    return reach_all(entry.rm);
}

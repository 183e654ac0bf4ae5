#include "moves.h"
#include "stream.h"
#include "ranges.h"

CUresult cuInit(unsigned int flags)
{
    CUresult result;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    rmc_lock();
    if (session_inherited()) {
        stack_forget();
        objects_forget();
        contexts_forget();
        slabs_forget();
        ranges_forget();
        reservations_forget();
        moves_forget();
        pools_forget();
        host_functions_forget();
        physical_forget();
        uvm_forget();
    }
    result = session_open();
    rmc_unlock();
    return result;
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = SIM_CUDA_VERSION;
    return CUDA_SUCCESS;
}

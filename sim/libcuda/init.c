#include "access.h"
#include "checkpoint.h"
#include "moves.h"
#include "ranges.h"
#include "stream.h"

CUresult cuInit(unsigned int flags)
{
    CUresult result;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    gate_pass();
    rmc_lock();
    if (session_inherited()) {
        checkpoint_forget();
        stack_forget();
        objects_forget();
        contexts_forget();
        slabs_forget();
        ranges_forget();
        access_forget();
        reservations_forget();
        moves_forget();
        pools_forget();
        host_functions_forget();
        physical_forget();
        uvm_forget();
    }
    result = session_open();
    if (!result)
        checkpoint_start();
    rmc_unlock();
    gate_leave();
    return result;
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = SIM_CUDA_VERSION;
    return CUDA_SUCCESS;
}

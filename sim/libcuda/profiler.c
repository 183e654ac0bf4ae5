/* What tools ask of the library: there are no switches and no tables besides its interface. */
#include "cuda.h"

CUresult cuProfilerStart(void)
{
    CUcontext context;
    ENTRY entry = enter_context(&context);

    return entry.error;
}

CUresult cuProfilerStop(void)
{
    return cuProfilerStart();
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

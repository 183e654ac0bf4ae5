#include "cuda_api.h"

static const struct error_text {
    CUresult error;
    const char *name, *text;
} errors[] = {
#define ERROR(name, number, text) {name, #name, text},
#include "errors.def"
#undef ERROR
};

static const struct error_text *find(CUresult error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return &errors[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    const struct error_text *known = find(error);

    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = known ? known->name : NULL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct error_text *known = find(error);

    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = known ? known->text : NULL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#include "moves.h"
#include "stream.h"

struct operand {
    int type;
    CUdeviceptr base;
    size_t x, y, z, pitch, height;
};

static CUdeviceptr base_of(int type, const void *host, CUdeviceptr device)
{
    return type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
}

/* The last byte that a box touches from its first on, and one more; 0: more than there can be. */
static size_t span_of(const struct box *box, size_t pitch, size_t slice)
{
    size_t rows, planes, span;

    if (__builtin_mul_overflow(box->height - 1, pitch, &rows) ||
        __builtin_mul_overflow(box->depth - 1, slice, &planes) ||
        __builtin_add_overflow(rows, planes, &span) || __builtin_add_overflow(span, box->width, &span))
        return 0;
    return span;
}

static CUresult side_of(const struct operand *operand, const struct box *box, struct side *side,
                        struct place *place)
{
    size_t pitch = operand->pitch ? operand->pitch : box->width;
    size_t slice = (operand->height ? operand->height : box->height) * pitch;
    size_t offset = operand->z * slice + operand->y * pitch + operand->x, span = span_of(box, pitch, slice);
    CUresult error;

    if (operand->type == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (operand->type < CU_MEMORYTYPE_HOST || operand->type > CU_MEMORYTYPE_UNIFIED || !span ||
        operand->x + box->width > pitch || (operand->height && operand->y + box->height > operand->height))
        return CUDA_ERROR_INVALID_VALUE;
    error = place_of(operand->base + offset, span, place);
    if (!error && operand->type == CU_MEMORYTYPE_DEVICE && place->kind == PLACE_PAGEABLE)
        error = CUDA_ERROR_INVALID_VALUE;
    *side = (struct side){error ? NULL : place->at, pitch, slice};
    return error;
}

static CUresult copy_box(const struct operand *to, const struct operand *from, struct box box,
                         CUstream handle, bool blocking)
{
    struct copy copy = {.box = box};
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    if (error || !box.width || !box.height || !box.depth)
        return error;
    error = side_of(to, &box, &copy.to, &copy.to_place);
    if (!error)
        error = side_of(from, &box, &copy.from, &copy.from_place);
    return error ? error : copy_submit(&copy, stream, blocking);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool blocking)
{
    struct operand from, to;

    if (!p || p->srcLOD || p->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    from = (struct operand){
        .type = p->srcMemoryType,
        .base = base_of(p->srcMemoryType, p->srcHost, p->srcDevice),
        .x = p->srcXInBytes,
        .y = p->srcY,
        .z = p->srcZ,
        .pitch = p->srcPitch,
        .height = p->srcHeight,
    };
    to = (struct operand){
        .type = p->dstMemoryType,
        .base = base_of(p->dstMemoryType, p->dstHost, p->dstDevice),
        .x = p->dstXInBytes,
        .y = p->dstY,
        .z = p->dstZ,
        .pitch = p->dstPitch,
        .height = p->dstHeight,
    };
    return copy_box(&to, &from, (struct box){p->WidthInBytes, p->Height, p->Depth}, stream, blocking);
}

/* One layer of a box. */
static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool blocking)
{
    CUDA_MEMCPY3D layer;

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    layer = (CUDA_MEMCPY3D){
        .srcXInBytes = p->srcXInBytes,
        .srcY = p->srcY,
        .srcMemoryType = p->srcMemoryType,
        .srcHost = p->srcHost,
        .srcDevice = p->srcDevice,
        .srcPitch = p->srcPitch,
        .dstXInBytes = p->dstXInBytes,
        .dstY = p->dstY,
        .dstMemoryType = p->dstMemoryType,
        .dstHost = p->dstHost,
        .dstDevice = p->dstDevice,
        .dstPitch = p->dstPitch,
        .WidthInBytes = p->WidthInBytes,
        .Height = p->Height,
        .Depth = 1,
    };
    return copy_3d(&layer, stream, blocking);
}

#define FORMS(dimensions, copy)                                                                          \
    CUresult cuMemcpy##dimensions##Async_v2(const CUDA_MEMCPY##dimensions *params, CUstream stream)      \
    {                                                                                                    \
        return copy(params, stream, false);                                                              \
    }                                                                                                    \
    CUresult cuMemcpy##dimensions##Async_v2_ptsz(const CUDA_MEMCPY##dimensions *params, CUstream stream) \
    {                                                                                                    \
        return copy(params, stream ? stream : CU_STREAM_PER_THREAD, false);                              \
    }                                                                                                    \
    CUresult cuMemcpy##dimensions##_v2(const CUDA_MEMCPY##dimensions *params)                            \
    {                                                                                                    \
        return copy(params, NULL, true);                                                                 \
    }                                                                                                    \
    CUresult cuMemcpy##dimensions##_v2_ptds(const CUDA_MEMCPY##dimensions *params)                       \
    {                                                                                                    \
        return copy(params, CU_STREAM_PER_THREAD, true);                                                 \
    }

FORMS(2D, copy_2d)
FORMS(3D, copy_3d)

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *params)
{
    return copy_2d(params, NULL, true);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *params)
{
    return copy_2d(params, CU_STREAM_PER_THREAD, true);
}

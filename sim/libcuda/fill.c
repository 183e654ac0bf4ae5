#include "moves.h"
#include "stream.h"
#include <string.h>

/* Rows of `width` elements, `pitch` bytes apart. */
struct filling {
    CUdeviceptr to;
    size_t pitch, width, height;
    const void *value;
    uint32_t unit;
};

static CUresult span_of(const struct filling *filling, size_t *span)
{
    size_t row = filling->width * filling->unit;

    if (filling->to % filling->unit || filling->width > SIZE_MAX / filling->unit)
        return CUDA_ERROR_INVALID_VALUE;
    if (filling->height > 1 && (filling->pitch < row || filling->pitch % filling->unit ||
                                filling->height > SIZE_MAX / filling->pitch))
        return CUDA_ERROR_INVALID_VALUE;
    *span = (filling->height - 1) * filling->pitch + row;
    return CUDA_SUCCESS;
}

static struct move *move_for(const struct filling *filling, const struct place *place, CUcontext context)
{
    struct move *move = move_make(context, filling->unit);

    if (!move)
        return NULL;
    memcpy(move->bytes, filling->value, filling->unit);
    move->pattern = move->bytes;
    move->unit = filling->unit;
    move->to = (struct side){place->at, filling->pitch, 0};
    move->box = (struct box){filling->width * filling->unit, filling->height, 1};
    return move;
}

static CUresult fill(struct filling filling, CUstream handle)
{
    struct move *move = NULL;
    struct sim_command command;
    struct place place;
    CUresult error;
    size_t span;
    mark_t mark;
    HELD_STREAM stream = stream_hold(handle, &error);

    if (error || !filling.width || !filling.height)
        return error;
    error = span_of(&filling, &span);
    if (!error)
        error = place_of(filling.to, span, &place);
    if (!error && place.kind == PLACE_PAGEABLE)
        error = CUDA_ERROR_INVALID_VALUE;
    if (error)
        return error;
    if (place.at && !(move = move_for(&filling, &place, stream->object.context)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    command = card_moves(stream, filling.width * filling.unit * filling.height);
    error = stream_submit_marked(stream, SIM_ENGINE_GRAPHICS, (struct commands){&command, 1}, &mark);
    if (move && error)
        move_drop(move);
    else if (move)
        move_add(move, mark);
    return error;
}

#define FILLS(bits, type)                                                                                    \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream)               \
    {                                                                                                        \
        return fill((struct filling){to, 0, count, 1, &value, sizeof value}, stream);                        \
    }                                                                                                        \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream)          \
    {                                                                                                        \
        return cuMemsetD##bits##Async(to, value, count, stream ? stream : CU_STREAM_PER_THREAD);             \
    }                                                                                                        \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count)                                  \
    {                                                                                                        \
        return cuMemsetD##bits##Async(to, value, count, NULL);                                               \
    }                                                                                                        \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count)                             \
    {                                                                                                        \
        return cuMemsetD##bits##Async(to, value, count, CU_STREAM_PER_THREAD);                               \
    }                                                                                                        \
    CUresult cuMemsetD##bits(CUdeviceptr to, type value, size_t count)                                       \
    {                                                                                                        \
        return cuMemsetD##bits##Async(to, value, count, NULL);                                               \
    }                                                                                                        \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, \
                                      CUstream stream)                                                       \
    {                                                                                                        \
        return fill((struct filling){to, pitch, width, height, &value, sizeof value}, stream);               \
    }                                                                                                        \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width,           \
                                           size_t height, CUstream stream)                                   \
    {                                                                                                        \
        return cuMemsetD2D##bits##Async(to, pitch, value, width, height,                                     \
                                        stream ? stream : CU_STREAM_PER_THREAD);                             \
    }                                                                                                        \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height)   \
    {                                                                                                        \
        return cuMemsetD2D##bits##Async(to, pitch, value, width, height, NULL);                              \
    }                                                                                                        \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,             \
                                         size_t height)                                                      \
    {                                                                                                        \
        return cuMemsetD2D##bits##Async(to, pitch, value, width, height, CU_STREAM_PER_THREAD);              \
    }

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

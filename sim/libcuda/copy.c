#include "moves.h"
#include "stream.h"
#include <string.h>

enum {
    KERNEL_FLOOR_NS = 2000,
    TRANSFERS_PER_CLOCK = 2,
    BITS_PER_BYTE = 8,
    NS_PER_US = 1000,
    STAGED_BYTES = 64 << 10, /* of pageable memory: what is read before the call returns */
};

struct sim_command card_moves(CUstream stream, uint64_t bytes)
{
    const struct card_profile *model = engines_of(stream)->card->model;
    uint64_t bytes_per_us = (uint64_t)model->memory_clock_mhz * TRANSFERS_PER_CLOCK * model->memory_bus_bits /
                            BITS_PER_BYTE;

    return (struct sim_command){.op = SIM_CMD_KERNEL,
                                .a = KERNEL_FLOOR_NS + bytes * NS_PER_US / bytes_per_us};
}

static uint64_t bytes_of(const struct box *box)
{
    return box->width * box->height * box->depth;
}

/* NULL: there is nothing to move, or no memory (*error). What is read at once is packed. */
static struct move *move_for(const struct copy *copy, CUstream stream, bool staged, CUresult *error)
{
    struct move *move;
    uint8_t *packed;

    if (!copy->to.at || !copy->from.at)
        return NULL;
    move = move_make(stream->object.context, staged ? bytes_of(&copy->box) : 0);
    if (!move) {
        *error = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    move->to = copy->to;
    move->from = copy->from;
    move->box = copy->box;
    if (!staged)
        return move;
    packed = move->bytes;
    for (size_t z = 0; z < copy->box.depth; z++)
        for (size_t y = 0; y < copy->box.height; y++, packed += copy->box.width)
            memcpy(packed, copy->from.at + z * copy->from.slice + y * copy->from.pitch, copy->box.width);
    move->from = (struct side){move->bytes, copy->box.width, copy->box.width * copy->box.height};
    return move;
}

/* On one card each byte is read and written there. */
static bool is_on_card(const struct copy *copy)
{
    return copy->to_place.kind == PLACE_CARD && copy->from_place.kind == PLACE_CARD &&
           copy->to_place.card == copy->from_place.card;
}

/* Bytes go over the bus with host memory, and between cards: once where one of them reaches both sides, else
 * to the host and from there. The copy engine's work. */
static uint64_t bytes_over_bus(const struct copy *copy)
{
    bool through_host = copy->to_place.kind == PLACE_CARD && copy->from_place.kind == PLACE_CARD &&
                        !(copy->to_place.reached & copy->from_place.reached);

    return through_host ? 2 * bytes_of(&copy->box) : bytes_of(&copy->box);
}

static CUresult submit(const struct copy *copy, CUstream stream, struct move *move)
{
    bool on_card = is_on_card(copy);
    struct sim_command command = {.op = SIM_CMD_COPY, .a = bytes_over_bus(copy)};
    CUresult error;
    mark_t mark;

    if (on_card)
        command = card_moves(stream, 2 * bytes_of(&copy->box));
    error = stream_submit_marked(stream, on_card ? SIM_ENGINE_GRAPHICS : SIM_ENGINE_COPY,
                                 (struct commands){&command, 1}, &mark);
    if (!move)
        return error;
    if (error)
        move_drop(move);
    else
        move_add(move, mark);
    return error;
}

/* Pageable memory is the driver's only while the call lasts: what is written to it is written before, what is
 * read has been read, little of it into pages of the driver's own. */
CUresult copy_submit(const struct copy *copy, CUstream stream, bool blocking)
{
    bool pageable_to = copy->to_place.kind == PLACE_PAGEABLE;
    bool pageable_from = copy->from_place.kind == PLACE_PAGEABLE;
    bool on_card = is_on_card(copy);
    bool staged = !blocking && !pageable_to && pageable_from && bytes_of(&copy->box) <= STAGED_BYTES;
    CUresult error = CUDA_SUCCESS;
    struct move *move;

    if (!bytes_of(&copy->box))
        return CUDA_SUCCESS;
    move = move_for(copy, stream, staged, &error);
    if (!error)
        error = submit(copy, stream, move);
    if (!error && !on_card && !staged && (blocking || pageable_to || pageable_from))
        error = stream_wait(stream);
    return error;
}

/* What a copy names must be there: on the card, or anywhere. */
enum where { ANYWHERE, CARD };

static CUresult line_of(CUdeviceptr pointer, size_t bytes, enum where where, struct place *place)
{
    CUresult error = place_of(pointer, bytes, place);

    return !error && where == CARD && place->kind == PLACE_PAGEABLE ? CUDA_ERROR_INVALID_VALUE : error;
}

static CUresult copy_line(CUdeviceptr to, enum where to_where, CUdeviceptr from, enum where from_where,
                          size_t bytes, CUstream handle, bool blocking)
{
    struct copy copy = {.box = {bytes, 1, 1}};
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    if (error || !bytes)
        return error;
    error = line_of(to, bytes, to_where, &copy.to_place);
    if (!error)
        error = line_of(from, bytes, from_where, &copy.from_place);
    if (error)
        return error;
    copy.to.at = copy.to_place.at;
    copy.from.at = copy.from_place.at;
    return copy_submit(&copy, stream, blocking);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_line(to, CARD, (uintptr_t)from, ANYWHERE, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_line((uintptr_t)to, ANYWHERE, from, CARD, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_line(to, CARD, from, CARD, bytes, stream, false);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_line(to, ANYWHERE, from, ANYWHERE, bytes, stream, false);
}

/* Those forms return when the copy is done; of one on the card alone, at once. */
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_line(to, CARD, (uintptr_t)from, ANYWHERE, bytes, NULL, true);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_line(to, CARD, (uintptr_t)from, ANYWHERE, bytes, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_line((uintptr_t)to, ANYWHERE, from, CARD, bytes, NULL, true);
}

CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_line((uintptr_t)to, ANYWHERE, from, CARD, bytes, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_line(to, CARD, from, CARD, bytes, NULL, true);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_line(to, CARD, from, CARD, bytes, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_line(to, ANYWHERE, from, ANYWHERE, bytes, NULL, true);
}

CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_line(to, ANYWHERE, from, ANYWHERE, bytes, CU_STREAM_PER_THREAD, true);
}

/* The cards lie in one span of addresses: they say whose memory it is. */
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes, CUstream stream)
{
    (void)to_context;
    (void)from_context;
    return copy_line(to, CARD, from, CARD, bytes, stream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      size_t bytes)
{
    return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, NULL);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    return cuMemcpyHtoD_v2(to, from, bytes);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpyDtoH_v2(to, from, bytes);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpyDtoD_v2(to, from, bytes);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

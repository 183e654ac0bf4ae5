#include "stream.h"

enum { KERNEL_FLOOR_NS = 2000, TRANSFERS_PER_CLOCK = 2, BITS_PER_BYTE = 8, MHZ = 1000 * 1000 };

/* Whether all of it lies in one allocation. */
static CUresult check_span(CUdeviceptr pointer, size_t bytes)
{
    const struct range *range;
    ENTRY entry = enter();

    if (entry.error)
        return entry.error;
    range = range_at(pointer);
    return range && bytes <= range->bytes - (pointer - range->base) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* To or from host memory, which goes over the bus: the copy engine's work. */
static CUresult copy_over_bus(CUdeviceptr pointer, const void *host, size_t bytes, CUstream stream)
{
    struct sim_command command = {.op = SIM_CMD_COPY, .a = bytes};
    CUresult error = host || !bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    if (!error && bytes)
        error = check_span(pointer, bytes);
    if (error || !bytes)
        return error;
    return stream_submit(stream, SIM_ENGINE_COPY, (struct commands){&command, 1});
}

/* What a kernel takes that moves so many bytes through the card's memory. */
static CUresult move_on_card(uint64_t bytes, CUstream stream)
{
    const struct card_profile *model = engines_of(stream)->card->model;
    uint64_t bytes_per_us = (uint64_t)model->memory_clock_mhz * TRANSFERS_PER_CLOCK * model->memory_bus_bits /
                            BITS_PER_BYTE;
    struct sim_command command = {.op = SIM_CMD_KERNEL, .a = KERNEL_FLOOR_NS + bytes * 1000 / bytes_per_us};

    return stream_submit(stream, SIM_ENGINE_GRAPHICS, (struct commands){&command, 1});
}

static CUresult copy_on_card(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUresult error;

    if (!bytes)
        return CUDA_SUCCESS;
    error = check_span(to, bytes);
    if (!error)
        error = check_span(from, bytes);
    return error ? error : move_on_card(2 * (uint64_t)bytes, stream); /* each byte read and written */
}

static CUresult set_on_card(CUdeviceptr to, size_t count, size_t each, CUstream stream)
{
    CUresult error;

    if (!count)
        return CUDA_SUCCESS;
    if (to % each || count > SIZE_MAX / each)
        return CUDA_ERROR_INVALID_VALUE;
    error = check_span(to, count * each);
    return error ? error : move_on_card(count * each, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    return error ? error : copy_over_bus(to, from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    return error ? error : copy_over_bus(from, to, bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    return error ? error : copy_on_card(to, from, bytes, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    (void)value;
    return error ? error : set_on_card(to, count, 1, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(handle, &error);

    (void)value;
    return error ? error : set_on_card(to, count, sizeof(uint32_t), stream);
}

/* The forms that return when the copy is done; those on the card alone return at once. */
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    CUresult error = cuMemcpyHtoDAsync_v2(to, from, bytes, NULL);

    return error ? error : cuStreamSynchronize(NULL);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    CUresult error = cuMemcpyDtoHAsync_v2(to, from, bytes, NULL);

    return error ? error : cuStreamSynchronize(NULL);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpyDtoDAsync_v2(to, from, bytes, NULL);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return cuMemsetD8Async(to, value, count, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count)
{
    return cuMemsetD32Async(to, value, count, NULL);
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

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
    return cuMemsetD8_v2(to, value, count);
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned int value, size_t count)
{
    return cuMemsetD32_v2(to, value, count);
}

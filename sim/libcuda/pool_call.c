#include "pool.h"
#include "stream.h"

static struct range *find_cached(CUmemoryPool pool, const struct CUctx_st *context, size_t bytes)
{
    struct range *range;

    for (size_t i = 0; (range = range_number(i)); i++)
        if (range->pool == pool && range->kind == RANGE_CACHED && range->bytes == bytes &&
            range->context == context)
            return range;
    return NULL;
}

static CUresult take(CUdeviceptr *pointer, size_t bytes, CUmemoryPool handle, CUstream stream)
{
    struct range range = {.bytes = bytes, .context = stream->object.context}, *cached;
    struct pool_use use;
    CUmemoryPool pool;
    CUresult error;
    ENTER(entry, enter());

    pool = handle ? pool_find(handle) : pool_current(range.context->device);
    if (!pool)
        return handle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (pool->device != range.context->device)
        return CUDA_ERROR_INVALID_VALUE;
    cached = find_cached(pool, range.context, bytes);
    if (cached) {
        cached->kind = RANGE_DEVICE;
        *pointer = cached->base;
        error = CUDA_SUCCESS;
    } else {
        range.pool = pool;
        range.card = range.context->device->card;
        error = memory_make(entry.rm, &range);
        *pointer = error ? 0 : range.base;
    }
    use = pool_use(pool);
    pool->high.used = use.used > pool->high.used ? use.used : pool->high.used;
    pool->high.reserved = use.reserved > pool->high.reserved ? use.reserved : pool->high.reserved;
    return error;
}

/* Waits for the stream that frees first; false: none does. */
static bool wait_for_freed(void)
{
    CUcontext context = NULL;
    struct range *range;
    mark_t mark = NO_MARK;
    ENTRY entry = enter();

    if (entry.error)
        return false;
    for (size_t i = 0; (range = range_number(i)) && !context; i++) {
        if (range->kind != RANGE_FREEING)
            continue;
        context = context_hold(range->context);
        mark = range->freed;
    }
    leave(&entry);
    if (!context)
        return false;
    entry.error = mark_wait(context->engines, mark);
    context_release(context);
    return !entry.error;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream handle)
{
    CUresult error;
    bool more;
    HOLD_STREAM(stream, handle);

    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pools_settle();
    error = take(pointer, bytes, pool, stream);
    while (error == CUDA_ERROR_OUT_OF_MEMORY) {
        more = wait_for_freed();
        pools_reuse(true);
        error = take(pointer, bytes, pool, stream);
        if (!more)
            break;
    }
    return error;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return cuMemAllocFromPoolAsync(pointer, bytes, NULL, stream);
}

static struct range *of_a_pool(CUdeviceptr pointer)
{
    struct range *range = range_in_use(pointer);

    return range && range->base == pointer && range->pool ? range : NULL;
}

static CUresult check_freeable(CUdeviceptr pointer)
{
    ENTER(entry, enter());

    return of_a_pool(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle)
{
    static const struct sim_command nothing = {0};
    struct range *range;
    CUresult error;
    mark_t mark;
    HELD_STREAM stream = stream_hold(handle, &error);

    if (!error)
        error = check_freeable(pointer);
    if (!error)
        error = stream_submit_marked(stream, stream_engine(stream), (struct commands){&nothing, 0}, &mark);
    if (error)
        return error;
    ENTER(entry, enter());

    range = of_a_pool(pointer);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    pool_free(range, stream->object.context, mark);
    return CUDA_SUCCESS;
}

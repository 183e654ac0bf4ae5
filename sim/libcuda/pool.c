/* Memory in the order of streams. It is the driver's from the call that asks for it, counted at once; freed,
 * it stays the pool's until the stream has come there, and then as long as the pool's threshold allows. */
#include "pool.h"
#include "moves.h"
#include "stream.h"
#include <stdlib.h>

static size_t freeing; /* atomic: ranges of that kind, about */

static void pool_end(struct object *object)
{
    free(object);
}

struct pool_use pool_use(CUmemoryPool pool)
{
    struct pool_use use = {0};
    struct range *range;

    for (size_t i = 0; (range = range_number(i)); i++) {
        if (range->pool != pool)
            continue;
        use.reserved += range->bytes;
        use.used += range->kind == RANGE_DEVICE ? range->bytes : 0;
    }
    return use;
}

CUmemoryPool pool_find(CUmemoryPool handle)
{
    return (CUmemoryPool)object_find(handle, OBJECT_POOL);
}

CUmemoryPool pool_make(struct device *device)
{
    CUmemoryPool pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    object_add(&pool->object, OBJECT_POOL, NULL, pool_end);
    pool->device = device;
    for (int i = 0; i < POOL_REUSES; i++)
        pool->reuse[i] = 1;
    return pool;
}

CUmemoryPool pool_default(struct device *device)
{
    if (!device->default_pool)
        device->default_pool = pool_make(device);
    return device->default_pool;
}

CUmemoryPool pool_current(struct device *device)
{
    return device->current_pool ? device->current_pool : pool_default(device);
}

void pool_trim(const struct rmc *rm, CUmemoryPool pool, uint64_t keep)
{
    struct pool_use use = pool_use(pool);
    struct range *range;

    for (size_t i = 0; use.reserved > keep && (range = range_number(i));) {
        if (range->pool != pool || range->kind != RANGE_CACHED) {
            i++;
            continue;
        }
        use.reserved -= range->bytes;
        rmc_free(rm, range->handle);
        range_remove(range);
    }
}

/* Frees that the card has come to, some at a time. */
struct freed {
    struct {
        uint64_t id;
        mark_t mark; /* freed again meanwhile, it has another */
    } found[64];
    size_t count;
};

static struct freed find_freed(void)
{
    struct freed freed = {.count = 0};
    struct range *range;
    ENTRY entry = enter();

    if (entry.error)
        return freed;
    for (size_t i = 0; freed.count < sizeof freed.found / sizeof freed.found[0] && (range = range_number(i));
         i++)
        if (range->kind == RANGE_FREEING && mark_reached(range->context->engines, range->freed)) {
            freed.found[freed.count].id = range->id;
            freed.found[freed.count++].mark = range->freed;
        }
    return freed;
}

static bool is_freed(const struct freed *freed, const struct range *range)
{
    for (size_t i = 0; i < freed->count; i++)
        if (freed->found[i].id == range->id && freed->found[i].mark == range->freed)
            return true;
    return false;
}

/* `all`: whatever their thresholds say. */
static void give_back(const struct freed *freed, bool all)
{
    CUmemoryPool pool = NULL;
    struct range *range;
    size_t left = 0;
    ENTRY entry = enter();

    if (entry.error)
        return;
    for (size_t i = 0; (range = range_number(i)); i++) {
        if (range->kind != RANGE_FREEING)
            continue;
        if (is_freed(freed, range))
            range->kind = RANGE_CACHED;
        else
            left++;
    }
    __atomic_store_n(&freeing, left, __ATOMIC_RELEASE);
    while ((pool = (CUmemoryPool)object_next(pool, OBJECT_POOL)))
        pool_trim(entry.rm, pool, all ? 0 : pool->threshold);
}

/* What was to be moved there before it was freed has been moved by the time it is handed out again. */
static void reuse_freed(bool all)
{
    struct freed freed = find_freed();

    moves_settle();
    give_back(&freed, all);
}

void pools_settle(void)
{
    if (__atomic_load_n(&freeing, __ATOMIC_ACQUIRE))
        reuse_freed(false);
}

void pools_forget(void)
{
    freeing = 0;
}

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
    HELD_STREAM stream = stream_hold(handle, &error);
    bool more;

    if (error)
        return error;
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pools_settle();
    error = take(pointer, bytes, pool, stream);
    while (error == CUDA_ERROR_OUT_OF_MEMORY) {
        more = wait_for_freed();
        reuse_freed(true);
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
    range->kind = RANGE_FREEING;
    range->freed = mark;
    range->context = stream->object.context;
    __atomic_fetch_add(&freeing, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return cuMemAllocAsync(pointer, bytes, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return cuMemFreeAsync(pointer, stream ? stream : CU_STREAM_PER_THREAD);
}

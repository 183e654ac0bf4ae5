/* Memory in the order of streams. It is the driver's from the call that asks for it, counted at once; freed,
 * it stays the pool's until the stream has come there, and then as long as the pool's threshold allows. */
#include "pool.h"
#include "moves.h"
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
        reach_end(rm, range);
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
void pools_reuse(bool all)
{
    struct freed freed = find_freed();

    moves_settle();
    give_back(&freed, all);
}

void pools_settle(void)
{
    if (__atomic_load_n(&freeing, __ATOMIC_ACQUIRE))
        pools_reuse(false);
}

void pool_free(struct range *range, CUcontext context, mark_t mark)
{
    range->kind = RANGE_FREEING;
    range->freed = mark;
    range->context = context;
    __atomic_fetch_add(&freeing, 1, __ATOMIC_RELEASE);
}

void pools_forget(void)
{
    freeing = 0;
}

/* Memory pools, with the library's lock held unless it says otherwise.
 *   pool.c  which there are, what they keep    pool_call.c  cuMemAllocAsync, cuMemFreeAsync
 *   pool_attribute.c  cuMemPool* */
#ifndef MGPU_SIM_CUDA_POOL_H
#define MGPU_SIM_CUDA_POOL_H
#include "objects.h"
#include "ranges.h"

enum { POOL_REUSES = 3 };

struct pool_use {
    uint64_t reserved, used; /* bytes: with the driver, with programs */
};

struct CUmemPoolHandle_st {
    struct object object;
    struct device *device;
    uint64_t threshold; /* what it may keep past a wait */
    uint32_t reach;     /* bits of the cards that have access beside its own */
    struct pool_use high;
    int reuse[POOL_REUSES]; /* as set: memory is used again once it is free, whatever they say */
};

CUmemoryPool pool_find(CUmemoryPool handle);
CUmemoryPool pool_make(struct device *device);
/* NULL: out of memory. */
CUmemoryPool pool_default(struct device *device);
CUmemoryPool pool_current(struct device *device);
struct pool_use pool_use(CUmemoryPool pool);
/* Of what is not used. */
void pool_trim(const struct rmc *rm, CUmemoryPool pool, uint64_t keep);
/* The range is the pool's again once the mark is reached. */
void pool_free(struct range *range, CUcontext context, mark_t mark);
/* Without the lock: what was freed and has come so far; all of it goes to the driver, or what is above the
 * pools' thresholds. */
void pools_reuse(bool all);
#endif

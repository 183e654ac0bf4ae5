/* Blocks of a kernel that fit on a multiprocessor: by threads, registers, shared memory and their limit. */
#include "stream.h"

enum { WARP = 32, REGISTERS_PER_SM = 65536 };

static unsigned int least(unsigned int a, unsigned int b)
{
    return a < b ? a : b;
}

static int blocks_that_fit(const struct rmc_card *card, unsigned int threads, size_t shared_bytes)
{
    const struct card_profile *model = card->model;
    unsigned int rounded = (threads + WARP - 1) / WARP * WARP;
    uint64_t shared = shared_bytes + (uint64_t)card_reserved_shared_bytes(card);
    unsigned int fit;

    if (shared_bytes > model->shared_per_block_optin_bytes)
        return 0;
    fit = least(card_blocks_per_sm(card), model->threads_per_sm / rounded);
    fit = least(fit, REGISTERS_PER_SM / (rounded * FUNCTION_REGISTERS));
    return (int)(shared ? least(fit, (unsigned int)(model->shared_per_sm_bytes / shared)) : fit);
}

/* Left at once: what the program is asked while it counts may call us. */
static CUresult card_for(CUfunction function, const struct rmc_card **card)
{
    ENTER_CONTEXT(entry, context);

    *card = context->device->card;
    return function_find(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads,
                                                              size_t shared_bytes, unsigned int flags)
{
    const struct rmc_card *card;
    CUresult error = card_for(function, &card);

    if (error)
        return error;
    if (!blocks || threads <= 0 || threads > MAX_THREADS_PER_BLOCK || flags & ~1u)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = blocks_that_fit(card, (unsigned int)threads, shared_bytes);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared_bytes)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared_bytes, 0);
}

/* Of the block sizes that occupy a multiprocessor best, the largest. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared_bytes,
                                                   int limit, unsigned int flags)
{
    const struct rmc_card *card;
    int best = 0, best_threads = 0;
    CUresult error = card_for(function, &card);

    if (error)
        return error;
    if (!grid || !block || limit < 0 || flags & ~1u)
        return CUDA_ERROR_INVALID_VALUE;
    if (!limit || limit > MAX_THREADS_PER_BLOCK)
        limit = MAX_THREADS_PER_BLOCK;
    for (int threads = limit; threads > 0; threads = (threads - 1) / WARP * WARP) {
        size_t bytes = shared_of ? shared_of(threads) : shared_bytes;
        int blocks = blocks_that_fit(card, (unsigned int)threads, bytes);

        if (blocks * threads > best * best_threads) {
            best = blocks;
            best_threads = threads;
        }
    }
    *block = best_threads;
    *grid = best * (int)card->model->sm_count;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared_bytes, limit,
                                                     0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int threads)
{
    const struct rmc_card *card;
    size_t share;
    CUresult error = card_for(function, &card);

    if (error)
        return error;
    if (!bytes || blocks <= 0 || threads <= 0 || threads > MAX_THREADS_PER_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    share = card->model->shared_per_sm_bytes / (unsigned int)blocks;
    if (share < card_reserved_shared_bytes(card) || blocks_that_fit(card, (unsigned int)threads, 0) < blocks)
        return CUDA_ERROR_INVALID_VALUE;
    share -= card_reserved_shared_bytes(card);
    *bytes = share < card->model->shared_per_block_optin_bytes ? share
                                                               : card->model->shared_per_block_optin_bytes;
    return CUDA_SUCCESS;
}

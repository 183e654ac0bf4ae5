/* Everything that a locked process has of the driver, to the host and back. Away: bytes are copied first, and
 * then one FREE of the client gives all back at once. Back: objects are made anew, with other handles of the
 * driver's and at the same addresses, and the old ones' bytes are dropped last. So a process that is killed,
 * or whose memory does not suffice, has its data in one of the two places. */
#include "checkpoint.h"
#include "ranges.h"
#include "stream.h"
#include <sys/mman.h>

static bool is_video(const struct range *range)
{
    return range->kind == RANGE_DEVICE || range->kind == RANGE_FREEING || range->kind == RANGE_CACHED;
}

/* As documented: memory of several processes and managed memory stay where they are. */
static CUresult check(void)
{
    const struct range *range;
    const struct physical *physical = NULL;

    for (size_t i = 0; (range = range_number(i)); i++)
        if (range->kind == RANGE_MANAGED || range->kind == RANGE_OPENED || range->shared)
            return CUDA_ERROR_NOT_SUPPORTED;
    while ((physical = physical_next(physical)))
        if (physical->shared)
            return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

/* The card's time for so many bytes over the bus, on an engine that the context has already: another one
 * would take memory that there may not be. */
static void take_time(const struct rmc_card *card, uint64_t bytes)
{
    struct sim_command copy = {.op = SIM_CMD_COPY, .a = bytes};
    CUcontext context = bytes ? context_on(card) : NULL;

    if (context)
        stream_submit(context->legacy_stream,
                      context->engines->group[SIM_ENGINE_COPY] ? SIM_ENGINE_COPY : SIM_ENGINE_GRAPHICS,
                      (struct commands){&copy, 1});
}

static void take_times(const struct rmc *rm)
{
    uint64_t bytes[RM_MAX_CARDS] = {0};
    const struct physical *physical = NULL;
    const struct range *range;

    for (size_t i = 0; (range = range_number(i)); i++)
        if (is_video(range))
            bytes[range->card - rm->cards] += range->bytes;
    while ((physical = physical_next(physical)))
        bytes[physical->card - rm->cards] += physical->bytes;
    for (uint32_t i = 0; i < rm->card_count; i++)
        take_time(&rm->cards[i], bytes[i]);
}

enum { STAGES = 2, STAGE_BYTES = 2 << 20 };

/* NVIDIA's libcuda makes staging buffers in the card's memory before it gives any back, and when it makes the
 * process's anew (seen on an H200, docs/gpu-results.md). 0 in `handle`: none. */
static CUresult stage(const struct rmc *rm, uint32_t handle[RM_MAX_CARDS][STAGES])
{
    struct rm_memory params = {.owner = rm->client, .size = STAGE_BYTES};
    uint32_t status = 0;

    for (uint32_t i = 0; i < rm->card_count; i++)
        for (int j = 0; j < STAGES && context_on(&rm->cards[i]) && !status; j++)
            status = rmc_alloc(rm, rm->cards[i].device, &handle[i][j], NV01_MEMORY_LOCAL_USER, &params,
                               sizeof params);
    return status ? from_rm(status) : CUDA_SUCCESS;
}

static void unstage(const struct rmc *rm, uint32_t handle[RM_MAX_CARDS][STAGES])
{
    for (uint32_t i = 0; i < rm->card_count; i++)
        for (int j = 0; j < STAGES; j++)
            if (handle[i][j])
                rmc_free(rm, handle[i][j]);
}

static CUresult wait_for_copies(void)
{
    while (!contexts_drained())
        if (!checkpoint_linger())
            return CUDA_ERROR_NOT_READY;
    return CUDA_SUCCESS;
}

static void drop_saved(void)
{
    struct physical *physical = NULL;
    struct range *range;

    for (size_t i = 0; (range = range_number(i)); i++) {
        saved_free(range->saved);
        range->saved = NULL;
    }
    while ((physical = physical_next(physical))) {
        saved_free(physical->saved);
        physical->saved = NULL;
    }
}

/* Memory that nothing was ever copied to has no bytes here. */
static CUresult save(const struct rmc *rm)
{
    struct physical *physical = NULL;
    CUresult result = CUDA_SUCCESS;
    struct range *range;

    for (size_t i = 0; !result && (range = range_number(i)); i++)
        if (is_video(range) && (range->at || range->moved)) {
            range->moved = true;
            result = saved_take(rm, range->card, range->handle, range->bytes, &range->saved);
        }
    while (!result && (physical = physical_next(physical)))
        result = saved_take(rm, physical->card, physical->handle, physical->bytes, &physical->saved);
    return result;
}

/* Nothing but its mapping is left of memory of the host: it is the program's, as if it were registered. */
static void let_go(struct range *range)
{
    if (range->kind == RANGE_MAPPED && range->at)
        contents_reserve(range);
    else if (is_video(range)) {
        contents_unmap(range);
        range->at = NULL;
    }
    range->handle = 0;
}

static void leave_driver(void)
{
    struct range *range;

    uvm_forget();
    reach_forget();
    session_leave();
    contexts_leave();
    for (size_t i = 0; (range = range_number(i)); i++)
        let_go(range);
}

CUresult checkpoint_away(void)
{
    uint32_t staged[RM_MAX_CARDS][STAGES] = {0};
    const struct rmc *rm = session_rm();
    CUresult result = check();

    if (result)
        return result;
    result = stage(rm, staged);
    if (!result) {
        take_times(rm);
        result = save(rm);
    }
    if (!result)
        result = wait_for_copies();
    if (result) {
        unstage(rm, staged);
        drop_saved();
        return result;
    }
    slabs_forget();
    leave_driver();
    return CUDA_SUCCESS;
}

static CUresult make_again(const struct rmc *rm, const struct rmc_card *card, uint64_t bytes,
                           const struct saved *saved, uint32_t *handle)
{
    struct rm_memory params = {.owner = rm->client, .size = bytes};
    uint32_t status;

    *handle = 0;
    status = rmc_alloc(rm, card->device, handle, NV01_MEMORY_LOCAL_USER, &params, sizeof params);
    return status ? from_rm(status) : saved_put(rm, card, *handle, bytes, saved);
}

static CUresult map_again(const struct rmc *rm, struct range *range)
{
    range->handle = range->physical->handle;
    if (!range->at)
        return CUDA_SUCCESS;
    contents_unmap(range);
    return contents_map_at(rm, range, PROT_READ | PROT_WRITE) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult memory_back(const struct rmc *rm)
{
    struct physical *physical = NULL;
    CUresult result = CUDA_SUCCESS;
    struct range *range;

    while (!result && (physical = physical_next(physical)))
        result = make_again(rm, physical->card, physical->bytes, physical->saved, &physical->handle);
    for (size_t i = 0; !result && (range = range_number(i)); i++)
        if (range->kind == RANGE_MAPPED)
            result = map_again(rm, range);
        else if (is_video(range))
            result = make_again(rm, range->card, range->bytes, range->saved, &range->handle);
    return result ? result : reach_all(rm);
}

CUresult checkpoint_back(const CUcheckpointGpuPair *pairs, unsigned int count)
{
    uint32_t staged[RM_MAX_CARDS][STAGES] = {0};
    CUresult result = session_return(pairs, count);

    if (result)
        return result;
    result = contexts_return();
    if (!result)
        result = stage(session_rm(), staged);
    if (!result) {
        take_times(session_rm());
        result = memory_back(session_rm());
    }
    if (!result)
        result = wait_for_copies();
    if (!result)
        unstage(session_rm(), staged);
    if (result) {
        leave_driver();
        session_stay();
    } else {
        drop_saved();
    }
    return result;
}

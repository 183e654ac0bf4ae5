#include "moves.h"
#include "ranges.h"
#include "stream.h"

CUresult place_of(CUdeviceptr pointer, size_t bytes, struct place *place)
{
    struct range *range;
    uint8_t *first;
    ENTER(entry, enter());

    range = range_in_use(pointer);
    if (!range) {
        *place = (struct place){.at = (uint8_t *)(uintptr_t)pointer, .kind = PLACE_PAGEABLE};
        return pointer && !address_is_ours(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (range->kind == RANGE_MAPPED && !range->flags && !range->reach)
        return CUDA_ERROR_INVALID_VALUE; /* cuMemSetAccess() has not been called */
    if (bytes > ranges_run(range) - (pointer - range->base))
        return CUDA_ERROR_INVALID_VALUE;
    first = contents_of(entry.rm, range);
    *place = (struct place){
        .at = first ? first + (pointer - range->base) : NULL,
        .kind = range_is_on_card(range) ? PLACE_CARD : PLACE_PINNED,
        .card = range->card,
        .reached = range->card ? range->reached | 1u << (range->card - entry.rm->cards) : 0,
    };
    return CUDA_SUCCESS;
}

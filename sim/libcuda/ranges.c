#include "cuda.h"
#include <stdlib.h>
#include <string.h>

/* Device addresses: a span that no process on x86-64 maps anything into by default. */
static const CUdeviceptr SPAN_FIRST = 0x100000000000u, SPAN_END = 0x500000000000u;
enum { ALIGNMENT_BYTES = 2 << 20, FIRST_ROOM = 256 };

static struct range *ranges; /* by base */
static size_t count, room;
static CUdeviceptr next_base;

void ranges_forget(void)
{
    count = 0;
}

/* Index of the first range that ends behind the address. */
static size_t position(CUdeviceptr address)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ranges[middle].base + ranges[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Once the span has been used up from end to end, the first gap that is wide enough. */
static CUdeviceptr find_gap(size_t bytes)
{
    CUdeviceptr base = SPAN_FIRST;

    for (size_t i = 0; i < count && ranges[i].base - base < bytes; i++)
        base = (ranges[i].base + ranges[i].bytes + ALIGNMENT_BYTES - 1) & ~(CUdeviceptr)(ALIGNMENT_BYTES - 1);
    return base;
}

bool range_add(struct range *range)
{
    size_t at;

    if (count == room) {
        size_t wanted = room ? room * 2 : FIRST_ROOM;
        struct range *grown = realloc(ranges, wanted * sizeof *ranges);

        if (!grown)
            return false;
        ranges = grown;
        room = wanted;
    }
    if (range->bytes > SPAN_END - SPAN_FIRST)
        return false;
    range->base = next_base ? next_base : SPAN_FIRST;
    if (range->bytes > SPAN_END - range->base)
        range->base = find_gap(range->bytes);
    if (range->bytes > SPAN_END - range->base)
        return false;
    at = position(range->base);
    memmove(&ranges[at + 1], &ranges[at], (count - at) * sizeof *ranges);
    ranges[at] = *range;
    count++;
    if (at == count - 1)
        next_base = (range->base + range->bytes + ALIGNMENT_BYTES - 1) & ~(CUdeviceptr)(ALIGNMENT_BYTES - 1);
    return true;
}

const struct range *range_at(CUdeviceptr address)
{
    size_t at = position(address);

    return at < count && ranges[at].base <= address ? &ranges[at] : NULL;
}

void range_remove(const struct range *range)
{
    size_t at = (size_t)(range - ranges);

    count--;
    memmove(&ranges[at], &ranges[at + 1], (count - at) * sizeof *ranges);
}

void ranges_end_context(const struct rmc *rm, CUcontext context)
{
    for (size_t i = count; i--;) {
        if (ranges[i].context != context)
            continue;
        rmc_free(rm, ranges[i].handle);
        range_remove(&ranges[i]);
    }
}

#include "ranges.h"
#include <stdlib.h>
#include <string.h>

/* Device addresses: a span that no process on x86-64 maps anything into by default, and behind it that of
 * reserve.c. */
static const CUdeviceptr SPAN_FIRST = 0x100000000000u, SPAN_END = RESERVED_FIRST;
enum { ALIGNMENT_BYTES = 2 << 20, FIRST_ROOM = 256 };

static struct range *ranges; /* by base */
static size_t count, room;
static CUdeviceptr next_base;
static uint64_t last_id;

void ranges_forget(void)
{
    count = 0;
}

bool address_is_ours(CUdeviceptr address)
{
    return address >= SPAN_FIRST && address < RESERVED_END;
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

/* Of a base that lets the next allocation begin on a boundary. */
static CUdeviceptr aligned_end(const struct range *range)
{
    return (range->base + range->bytes + ALIGNMENT_BYTES - 1) & ~(CUdeviceptr)(ALIGNMENT_BYTES - 1);
}

/* Once the span has been used up from end to end, the first gap that is wide enough. */
static CUdeviceptr find_gap(size_t bytes)
{
    CUdeviceptr base = SPAN_FIRST;

    for (size_t i = position(SPAN_FIRST); i < count && ranges[i].base - base < bytes; i++)
        base = aligned_end(&ranges[i]);
    return base;
}

static bool make_room(void)
{
    size_t wanted = room ? room * 2 : FIRST_ROOM;
    struct range *grown;

    if (count < room)
        return true;
    grown = realloc(ranges, wanted * sizeof *ranges);
    if (!grown)
        return false;
    ranges = grown;
    room = wanted;
    return true;
}

bool range_add_at(struct range *range)
{
    size_t at = position(range->base);

    if (!make_room() || (at < count && ranges[at].base - range->base < range->bytes))
        return false;
    range->id = ++last_id;
    memmove(&ranges[at + 1], &ranges[at], (count - at) * sizeof *ranges);
    ranges[at] = *range;
    count++;
    if (range->base >= SPAN_FIRST && range->base < SPAN_END && aligned_end(range) > next_base)
        next_base = aligned_end(range);
    return true;
}

bool range_add(struct range *range)
{
    if (range->bytes > SPAN_END - SPAN_FIRST)
        return false;
    range->base = next_base ? next_base : SPAN_FIRST;
    if (range->base >= SPAN_END || range->bytes > SPAN_END - range->base)
        range->base = find_gap(range->bytes);
    return range->bytes <= SPAN_END - range->base && range_add_at(range);
}

struct range *range_at(CUdeviceptr address)
{
    size_t at = position(address);

    return at < count && ranges[at].base <= address ? &ranges[at] : NULL;
}

struct range *range_in_use(CUdeviceptr address)
{
    struct range *range = range_at(address);

    return range && range->kind != RANGE_FREEING && range->kind != RANGE_CACHED ? range : NULL;
}

struct range *range_number(size_t index)
{
    return index < count ? &ranges[index] : NULL;
}

uint64_t ranges_run(const struct range *range)
{
    const struct range *last = range;

    while (range->kind == RANGE_MAPPED && last + 1 < ranges + count && last[1].kind == RANGE_MAPPED &&
           last[1].base == last->base + last->bytes)
        last++;
    return last->base + last->bytes - range->base;
}

void range_remove(struct range *range)
{
    size_t at = (size_t)(range - ranges);

    contents_unmap(range);
    count--;
    memmove(&ranges[at], &ranges[at + 1], (count - at) * sizeof *ranges);
}

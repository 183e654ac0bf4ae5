/* Addresses without memory, and memory of cuMemCreate() put there. */
#include "moves.h"
#include "ranges.h"
#include <stdlib.h>
#include <sys/mman.h>

struct reservation {
    struct reservation *next; /* by base */
    CUdeviceptr base;
    size_t bytes;
};
static struct reservation *reservations;

void reservations_forget(void)
{
    while (reservations) {
        struct reservation *gone = reservations;

        reservations = gone->next;
        free(gone);
    }
}

static CUdeviceptr align(CUdeviceptr address, size_t alignment)
{
    return (address + alignment - 1) & ~(CUdeviceptr)(alignment - 1);
}

/* Where it is hung into the list; its base is the first that has room. */
static struct reservation **find_room(size_t bytes, size_t alignment, CUdeviceptr *base)
{
    struct reservation **at = &reservations;

    *base = align(RESERVED_FIRST, alignment);
    while (*at && (*at)->base - *base < bytes) {
        *base = align((*at)->base + (*at)->bytes, alignment);
        at = &(*at)->next;
    }
    return at;
}

/* The address asked for is a wish, which is not fulfilled. */
CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags)
{
    struct reservation **at, *reservation;
    CUdeviceptr base;
    ENTRY entry = enter();

    (void)wish;
    if (entry.error)
        return entry.error;
    if (alignment < GRANULARITY_BYTES)
        alignment = alignment & (alignment - 1) ? alignment : GRANULARITY_BYTES;
    if (!pointer || !bytes || bytes % GRANULARITY_BYTES || alignment & (alignment - 1) || flags ||
        bytes > RESERVED_END - RESERVED_FIRST)
        return CUDA_ERROR_INVALID_VALUE;
    at = find_room(bytes, alignment, &base);
    reservation = base < RESERVED_END && bytes <= RESERVED_END - base ? malloc(sizeof *reservation) : NULL;
    if (!reservation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *reservation = (struct reservation){.next = *at, .base = base, .bytes = bytes};
    *at = reservation;
    *pointer = base;
    return CUDA_SUCCESS;
}

static bool anything_mapped(CUdeviceptr base, size_t bytes)
{
    const struct range *range;

    for (size_t i = 0; (range = range_number(i)); i++)
        if (range->kind == RANGE_MAPPED && range->base < base + bytes && base < range->base + range->bytes)
            return true;
    return false;
}

CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes)
{
    struct reservation **at = &reservations, *gone;
    ENTER(entry, enter());

    while (*at && (*at)->base != base)
        at = &(*at)->next;
    if (!*at || (*at)->bytes != bytes || anything_mapped(base, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    gone = *at;
    *at = gone->next;
    free(gone);
    return CUDA_SUCCESS;
}

static bool is_reserved(CUdeviceptr base, size_t bytes)
{
    const struct reservation *at = reservations;

    while (at && (base < at->base || base - at->base >= at->bytes))
        at = at->next;
    return at && bytes <= at->bytes - (base - at->base);
}

CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    struct range range = {.base = base, .bytes = bytes, .kind = RANGE_MAPPED, .from = offset};
    struct physical *physical;
    ENTER(entry, enter());

    physical = physical_find(handle);
    if (!physical || !bytes || bytes % GRANULARITY_BYTES || offset % GRANULARITY_BYTES || flags ||
        base % GRANULARITY_BYTES || offset > physical->bytes || bytes > physical->bytes - offset ||
        !is_reserved(base, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    range.card = physical->card;
    range.handle = physical->handle;
    range.physical = physical;
    if (!range_add_at(&range))
        return CUDA_ERROR_INVALID_VALUE;
    physical->users++;
    return CUDA_SUCCESS;
}

/* Whole maps, one behind the other from the first byte to the last. */
static bool is_whole_maps(CUdeviceptr base, size_t bytes)
{
    CUdeviceptr end = base + bytes;
    const struct range *range;

    while (base < end) {
        range = range_at(base);
        if (!range || range->kind != RANGE_MAPPED || range->base != base || range->bytes > end - base)
            return false;
        base += range->bytes;
    }
    return bytes > 0;
}

CUresult cuMemUnmap(CUdeviceptr base, size_t bytes)
{
    CUdeviceptr end = base + bytes;
    PASSAGE passage = passage_begin();
    ENTRY entry;

    moves_finish();
    entry = enter();
    if (entry.error)
        return entry.error;
    if (!is_whole_maps(base, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    while (base < end) {
        struct range *range = range_at(base);
        struct physical *physical = range->physical;

        base += range->bytes;
        reach_end(entry.rm, range);
        range_remove(range);
        entry.error = physical_put(entry.rm, physical);
    }
    return entry.error;
}

/* To the card that it lies on, or to a peer of that. Its bytes are there for copies once either has it. */
static CUresult give_access(const struct rmc *rm, struct range *range, const CUmemAccessDesc *description)
{
    const struct device *device = device_at(description->location.id);
    unsigned int access = (unsigned int)description->flags;

    if (description->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (device->card == range->card) {
        range->flags = access;
    } else {
        uint32_t bit = 1u << (device->card - rm->cards);

        if (access && !devices_are_peers(rm, device, device_at(ordinal_of_card(range->card))))
            return CUDA_ERROR_INVALID_DEVICE;
        range->reach = access ? range->reach | bit : range->reach & ~bit;
    }
    if (!range->flags && !range->reach) {
        contents_unmap(range);
        range->at = NULL;
    } else if (!range->at && !contents_map_at(rm, range, PROT_READ | PROT_WRITE)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return reach(rm, range);
}

static bool are_accesses(const CUmemAccessDesc *descriptions, size_t count)
{
    for (size_t i = 0; descriptions && i < count; i++)
        if (descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return false;
    return descriptions && count;
}

CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *descriptions, size_t count)
{
    CUdeviceptr end = base + bytes;
    PASSAGE passage = passage_begin();
    ENTRY entry;

    moves_finish();
    entry = enter();
    if (entry.error)
        return entry.error;
    if (!are_accesses(descriptions, count) || !is_whole_maps(base, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    while (base < end && !entry.error) {
        struct range *range = range_at(base);

        base += range->bytes;
        for (size_t i = 0; i < count && !entry.error; i++)
            entry.error = give_access(entry.rm, range, &descriptions[i]);
    }
    return entry.error;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)
{
    const struct device *device;
    const struct range *range;
    ENTER(entry, enter());

    range = range_at(pointer);
    if (!flags || !location || !range || range->kind != RANGE_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    device = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? device_at(location->id) : NULL;
    *flags = device && device->card == range->card ? range->flags
             : device && range->reach & 1u << (device->card - entry.rm->cards)
                 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    const struct range *range;
    struct physical *physical;
    ENTER(entry, enter());

    range = range_at((uintptr_t)address);
    if (!handle || !range || range->kind != RANGE_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    physical = range->physical;
    physical->users++;
    *handle = (uintptr_t)physical;
    return CUDA_SUCCESS;
}

/* What RM asks of the parameters of all memory, before it looks at what kind it is (stdmemValidateParams in
 * standard_mem.c of NVIDIA's open-gpu-kernel-modules), and what their sizes are multiples of. */
#include "rm.h"

/* HEAP_OWNER_RM_SCRATCH_BEGIN and _END of its heap, whose own memory has these; 595.45 ends at 3. */
enum { TYPES = 17, RM_OWNER = 0xdeaf0000, RM_OWNER_LAST = 0xdeaf0009 };

uint32_t memory_params_status(const struct rm_memory *params)
{
    if (params->internal_flags)
        return NV_ERR_INVALID_ARGUMENT;
    if (!params->owner || params->owner == UINT32_MAX ||
        (params->owner >= RM_OWNER && params->owner <= RM_OWNER_LAST))
        return NV_ERR_INVALID_OWNER;
    if (params->attr2 & RM_MEMORY_ATTR2_PAGE_OFFLINING_OFF)
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    if (!(params->flags & RM_MEMORY_FLAG_USE_BEGIN_END) && (params->range_lo || params->range_hi))
        return NV_ERR_INVALID_ARGUMENT;
    return params->size && params->type < TYPES ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

void memory_say_pages(struct rm_memory *params, uint64_t page)
{
    enum { CONTIGUOUS = 2, PHYSICALITY_SHIFT = 27, SMALL = 1, BIG, HUGE_PAGES };
    uint32_t pages = page == 4 << 10 ? SMALL : page == 64 << 10 ? BIG : HUGE_PAGES;

    params->attr &= ~(uint32_t)(RM_MEMORY_ATTR_PAGE_MASK << RM_MEMORY_ATTR_PAGE_SHIFT);
    params->attr |= pages << RM_MEMORY_ATTR_PAGE_SHIFT | CONTIGUOUS << PHYSICALITY_SHIFT;
    params->alignment = page;
}

/* Of pages of 4 KiB the heap gives sixteen at a time. */
uint64_t memory_page_bytes(const struct rm_memory *params)
{
    enum { BY_SIZE, SMALL, BIG, HUGE_PAGES };
    static const uint64_t huge_bytes[] = {2 << 20, 2 << 20, 512 << 20, 64 << 10};
    uint32_t huge = params->attr2 >> RM_MEMORY_ATTR2_HUGE_SHIFT & RM_MEMORY_ATTR2_HUGE_MASK;

    switch (params->attr >> RM_MEMORY_ATTR_PAGE_SHIFT & RM_MEMORY_ATTR_PAGE_MASK) {
    case SMALL:
        return 4 << 10;
    case BIG:
        return 64 << 10;
    case HUGE_PAGES:
        return huge_bytes[huge];
    default:
        return params->size < 2 << 20 ? 64 << 10 : 2 << 20;
    }
}

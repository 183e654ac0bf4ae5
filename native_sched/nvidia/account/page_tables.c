#include "page_tables.h"

/* What a table covers, from the leaves on, in the formats of Pascal to Blackwell (uvm_hopper_mmu.c,
 * uvm_turing_mmu.c). A leaf is there only for pages that are smaller than what it covers. The root is not
 * counted: there is one for each address space. */
enum { LEVELS = 5, LEAF_SHIFT = 21, TABLE_BYTES = 4096, BIG_PAGE_SHIFT = 16, BIG_LEAF_BYTES = 256 };
static const uint32_t covers_shift[LEVELS] = {LEAF_SHIFT, 29, 38, 47, 56};

uint64_t page_tables_most(uint64_t length)
{
    uint64_t bytes = 0;

    for (int i = 0; i < LEVELS - 1; i++)
        bytes += ((length >> covers_shift[i]) + 2) * TABLE_BYTES;
    return bytes;
}

uint32_t page_shift_of(uint64_t base, uint64_t length, uint64_t offset, uint32_t page_shift)
{
    uint64_t alignment = base | length | offset | 1ull << (page_shift ? page_shift : 12);
    uint32_t shift = (uint32_t)__builtin_ctzll(alignment);

    return shift >= LEAF_SHIFT ? LEAF_SHIFT : shift >= BIG_PAGE_SHIFT ? BIG_PAGE_SHIFT : 12;
}

uint64_t page_tables_bytes(uint64_t base, uint64_t end, uint32_t page_shift)
{
    uint64_t bytes = 0;

    for (uint32_t level = page_shift < LEAF_SHIFT ? 0 : 1; level < LEVELS; level++) {
        uint64_t tables = ((end - 1) >> covers_shift[level]) - (base >> covers_shift[level]) + 1;

        bytes += tables * (level == 0 && page_shift == BIG_PAGE_SHIFT ? BIG_LEAF_BYTES : TABLE_BYTES);
    }
    return bytes;
}

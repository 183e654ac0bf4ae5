#include "mmu.h"

/* Of the published dev_mmu.h of Pascal (NV_MMU_VER2_*) and Hopper (NV_MMU_VER3_*). */
enum { APERTURE_SHIFT = 1, APERTURE_MASK = 3, PDE_INVALID = 0, PDE_VIDEO = 1, PTE_VIDEO = 0, PTE_PEER = 1 };
enum { IS_LEAF = 1, LEVELS_MAX = 4, KIND_MESSAGE = 0xf };
enum { SHIFT_512M = 29, SHIFT_2M = 21, SHIFT_64K = 16, SHIFT_4K = 12 };

/* The levels that are directories of single entries, from the root on. */
struct level {
    uint32_t shift, bits;
};
static const struct layout {
    struct level level[LEVELS_MAX];
    uint32_t levels;
} layouts[] = {
    [MMU_FORMAT_2] = {{{47, 2}, {38, 9}, {29, 9}}, 3},
    [MMU_FORMAT_3] = {{{56, 1}, {47, 9}, {38, 9}, {29, 9}}, 4},
};

static uint64_t bits(uint64_t word, uint32_t high, uint32_t low)
{
    return word >> low & ((UINT64_C(1) << (high - low + 1)) - 1);
}

static uint64_t index_of(uint64_t address, uint32_t shift, uint32_t count)
{
    return address >> shift & ((UINT64_C(1) << count) - 1);
}

/* Format 2 has 25 bits of a video address, and 46 of a host's, both from bit 8 on; format 3 all at their
 * place. */
static uint64_t address_of(enum mmu_format format, uint64_t entry, bool video)
{
    if (format == MMU_FORMAT_3)
        return bits(entry, 51, 12) << 12;
    return (video ? bits(entry, 32, 8) : bits(entry, 53, 8)) << 12;
}

/* Where the table is that a directory's entry names. */
static bool table_of(enum mmu_format format, uint64_t entry, struct where *table)
{
    uint64_t aperture = entry >> APERTURE_SHIFT & APERTURE_MASK;

    if (aperture == PDE_INVALID)
        return false;
    table->aperture = aperture == PDE_VIDEO ? VIDEO : HOST;
    table->address = address_of(format, entry, aperture == PDE_VIDEO);
    return true;
}

/* Tables of big pages are aligned to 256 bytes. */
static bool big_table_of(enum mmu_format format, uint64_t entry, struct where *table)
{
    if (!table_of(format, entry, table))
        return false;
    if (format == MMU_FORMAT_3)
        table->address = bits(entry, 51, 8) << 8;
    else
        table->address = (table->aperture == VIDEO ? bits(entry, 32, 4) : bits(entry, 53, 4)) << 8;
    return true;
}

static bool page(enum mmu_format format, uint64_t entry, uint64_t address, uint32_t shift,
                 struct translation *found)
{
    uint64_t inside = address & ((UINT64_C(1) << shift) - 1), aperture;

    aperture = entry >> APERTURE_SHIFT & APERTURE_MASK;
    if (!(entry & IS_LEAF) || aperture == PTE_PEER)
        return false;
    found->to.aperture = aperture == PTE_VIDEO ? VIDEO : HOST;
    found->to.address = address_of(format, entry, aperture == PTE_VIDEO);
    found->to.address &= ~((UINT64_C(1) << shift) - 1);
    found->to.address |= inside;
    found->bytes = (UINT64_C(1) << shift) - inside;
    found->message = format == MMU_FORMAT_3 && bits(entry, 11, 8) == KIND_MESSAGE;
    return true;
}

static struct where entry_at(struct where table, uint64_t bytes)
{
    table.address += bytes;
    return table;
}

/* Below the last directory of single entries, each entry names a table of big pages and one of small pages.
 */
static bool walk_pages(mmu_read read, void *of, enum mmu_format format, struct where directory,
                       uint64_t address, struct translation *found)
{
    uint64_t at = index_of(address, SHIFT_2M, 8) * 16, big, small, entry;
    struct where table;

    if (!read(of, entry_at(directory, at), &big) || !read(of, entry_at(directory, at + 8), &small))
        return false;
    if (big & IS_LEAF)
        return page(format, big, address, SHIFT_2M, found);
    if (table_of(format, small, &table) &&
        read(of, entry_at(table, index_of(address, SHIFT_4K, 9) * 8), &entry) &&
        page(format, entry, address, SHIFT_4K, found))
        return true;
    return big_table_of(format, big, &table) &&
           read(of, entry_at(table, index_of(address, SHIFT_64K, 5) * 8), &entry) &&
           page(format, entry, address, SHIFT_64K, found);
}

bool mmu_walk(mmu_read read, void *of, enum mmu_format format, struct where directory, uint64_t address,
              struct translation *found)
{
    const struct layout *layout = &layouts[format];
    uint64_t entry;

    for (uint32_t i = 0; i < layout->levels; i++) {
        const struct level *level = &layout->level[i];

        if (!read(of, entry_at(directory, index_of(address, level->shift, level->bits) * 8), &entry))
            return false;
        if (level->shift == SHIFT_512M && entry & IS_LEAF)
            return page(format, entry, address, SHIFT_512M, found);
        if (!table_of(format, entry, &directory))
            return false;
    }
    return walk_pages(read, of, format, directory, address, found);
}

/* The page tables of external mappings. nvidia-uvm makes them of the card's memory, in no account of the driver's, and a table is
 * there once, however many mappings have entries in it (uvm_page_tree_get_ptes_async() in uvm_mmu.c of NVIDIA's
 * open-gpu-kernel-modules). So what a mapping takes is what no other has taken, and what it gives back is what none is left in.
 *
 * Mappings of one address space do not overlap for longer than it takes to replace one by another: tables that one of them fills
 * are counted for it alone, and only those at its two ends are looked up. Where they do overlap, too much is counted.
 *
 * Fixed capacity, no allocation after page_tables_open(); the owner serialises. */
#ifndef MGPU_PAGE_TABLES_H
#define MGPU_PAGE_TABLES_H
#include <stdint.h>

struct page_table_node;

struct page_tables {
    struct page_table_node *node; /* [0] unused */
    uint32_t *bucket;
    uint32_t free_head, high, max;
    uint64_t
        secret; /* names of tables are the tenant's to choose, and neither chains of them nor equals are to be */
};

/* A mapping: of an address space, from base on and up to end, by pages of 1 << page_shift bytes. */
struct mapped_range {
    uint64_t space, base, end;
    uint32_t page_shift;
};

/* The pages that UVM takes are the largest that all of these allow (uvm_map_external_allocation_on_gpu() in uvm_map_external.c),
 * the smallest are those of 4 KiB. page_shift: of the memory's own pages; 0: not known. */
uint32_t page_shift_of(uint64_t base, uint64_t length, uint64_t offset, uint32_t page_shift);
/* Bytes of tables that a mapping of that length takes at most: of the smallest pages, wherever it is put, as if no other mapping
 * had entries in them. Only the topmost tables are left out. */
uint64_t page_tables_most(uint64_t length);

/* For so many mappings. -ENOMEM. */
int page_tables_open(struct page_tables *p, uint32_t mappings);
void page_tables_close(struct page_tables *p);

/* The name of an address space: of a file and a GPU. */
uint64_t page_tables_space(const struct page_tables *p, uint64_t file, const uint8_t gpu[16]);

/* How many bytes of tables it adds, or gives back. */
uint64_t page_tables_add(struct page_tables *p, const struct mapped_range *r);
uint64_t page_tables_drop(struct page_tables *p, const struct mapped_range *r);
#endif

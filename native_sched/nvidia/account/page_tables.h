/* The page tables of external mappings. nvidia-uvm makes them of the card's memory, in no account of the
 * driver's (uvm_page_tree_get_ptes_async() in uvm_mmu.c of NVIDIA's open-gpu-kernel-modules). Mappings that
 * lie near each other share tables there. Here each is charged all that it has entries in, as if it were
 * alone: at most one table of each level too much. */
#ifndef MGPU_PAGE_TABLES_H
#define MGPU_PAGE_TABLES_H
#include <stdint.h>

/* The pages that UVM takes are the largest that all of these allow
 * (uvm_map_external_allocation_on_gpu() in uvm_map_external.c), the smallest are those of 4 KiB.
 * page_shift: of the memory's own pages; 0: not known. */
uint32_t page_shift_of(uint64_t base, uint64_t length, uint64_t offset, uint32_t page_shift);
/* Bytes of tables that a mapping of that length takes at most: of the smallest pages, wherever it is put, as
 * if no other mapping had entries in them. Only the topmost tables are left out. */
uint64_t page_tables_most(uint64_t length);
/* ... that a mapping takes from base on and up to end, by pages of 1 << page_shift bytes. */
uint64_t page_tables_bytes(uint64_t base, uint64_t end, uint32_t page_shift);
#endif

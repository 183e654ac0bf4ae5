/* A card's video memory, counted exactly. There are no addresses and so no fragmentation: an allocation fails
 * if and only if the bytes are not there. Serialised by the RM lock. */
#ifndef MGPU_SIM_HEAP_H
#define MGPU_SIM_HEAP_H
#include <stdint.h>

enum { HEAP_PAGE_BYTES = 65536 };

struct heap {
    uint64_t total_bytes, used_bytes;
};

/* The bytes taken (a multiple of HEAP_PAGE_BYTES), or 0 when they are not there. bytes > 0. */
uint64_t heap_take(struct heap *heap, uint64_t bytes);
void heap_give(struct heap *heap, uint64_t taken_bytes);
#endif

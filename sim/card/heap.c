#include "heap.h"

uint64_t heap_take(struct heap *heap, uint64_t bytes)
{
    uint64_t room = heap->total_bytes - heap->used_bytes;

    if (bytes > room)
        return 0;
    bytes = (bytes + HEAP_PAGE_BYTES - 1) & ~(uint64_t)(HEAP_PAGE_BYTES - 1);
    if (bytes > room)
        return 0;
    heap->used_bytes += bytes;
    return bytes;
}

void heap_give(struct heap *heap, uint64_t taken_bytes)
{
    heap->used_bytes -= taken_bytes;
}

#ifndef MGPU_RESERVE_H
#define MGPU_RESERVE_H
#include <stddef.h>
#include <sys/mman.h>

/* Zeroed memory that takes a page only where it is touched; calloc() may clear all of what was freed before.
 * NULL without memory; given back by munmap(). */
static inline void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}
#endif

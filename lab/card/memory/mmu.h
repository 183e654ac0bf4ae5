/* The GPU's page tables, as its memory unit walks them. Pure: where entries lie is asked of the caller. */
#ifndef MGPU_LAB_MMU_H
#define MGPU_LAB_MMU_H
#include <stdbool.h>
#include <stdint.h>

enum aperture { VIDEO, HOST };

struct where {
    enum aperture aperture;
    uint64_t address;
};

/* Reads a word of 64 bits; false: there is no memory. */
typedef bool (*mmu_read)(void *of, struct where at, uint64_t *word);

/* Pascal's format (2), with five levels below a directory of 49 bits; Hopper's (3), with one more. */
enum mmu_format { MMU_FORMAT_2 = 2, MMU_FORMAT_3 = 3 };

struct translation {
    struct where to;
    uint64_t bytes; /* as far as the page goes on */
    bool message;   /* no memory: an address among the registers of the virtual function */
};

/* False: nothing is mapped there. */
bool mmu_walk(mmu_read read, void *of, enum mmu_format format, struct where directory, uint64_t address,
              struct translation *found);
#endif

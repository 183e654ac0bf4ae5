/* What differs between chips, as the driver sees it: of NVIDIA's published headers and PCI ids. */
#ifndef MGPU_LAB_CHIPS_H
#define MGPU_LAB_CHIPS_H
#include "memory/mmu.h"
#include <stdbool.h>
#include <stdint.h>

struct chip {
    const char *key, *name;
    uint32_t boot_0, boot_42; /* NV_PMC_BOOT_0, _42 */
    uint16_t device, subsystem;
    bool falcons_by_dma; /* their code comes by DMA and is verified by the falcon; else it is written word by
                            word */
    /* From Hopper on: FSP boots the GSP, registers have a BAR of 64 bits, capabilities lie elsewhere. */
    bool fsp;
    enum mmu_format format;
    uint32_t sm_version, gpcs, tpcs_per_gpc, l2_mib, bus_bits, ltcs;
};

/* Registers, memory, what RM maps for itself. */
enum bar { BAR_REGISTERS, BAR_MEMORY, BAR_OF_RM, BAR_KINDS };
/* Which of PCI's numbers it has. One of 64 bits takes two. */
uint32_t bar_region(const struct chip *chip, enum bar bar);

const struct chip *chip_by_key(const char *key);
/* The i-th, or NULL. */
const struct chip *chip_known(uint32_t i);
#endif

#include "chips.h"
#include <stddef.h>
#include <string.h>

static const struct chip chips[] = {
    {.key = "ga102",
     .name = "NVIDIA A10",
     .boot_0 = 0x172000a1,
     .boot_42 = 0x172a1000,
     .device = 0x2236,
     .subsystem = 0x1482,
     .falcons_by_dma = true,
     .format = MMU_FORMAT_2,
     .sm_version = 0x806,
     .gpcs = 7,
     .tpcs_per_gpc = 6,
     .l2_mib = 6,
     .bus_bits = 384,
     .ltcs = 48},
    {.key = "ad102",
     .name = "NVIDIA L40",
     .boot_0 = 0x192000a1,
     .boot_42 = 0x192a1000,
     .device = 0x26b5,
     .subsystem = 0x169d,
     .falcons_by_dma = true,
     .format = MMU_FORMAT_2,
     .sm_version = 0x809,
     .gpcs = 12,
     .tpcs_per_gpc = 6,
     .l2_mib = 96,
     .bus_bits = 384,
     .ltcs = 48},
    {.key = "tu104",
     .name = "Tesla T4",
     .boot_0 = 0x164000a1,
     .boot_42 = 0x164a1000,
     .device = 0x1eb8,
     .subsystem = 0x12a2,
     .falcons_by_dma = false,
     .format = MMU_FORMAT_2,
     .sm_version = 0x705,
     .gpcs = 5,
     .tpcs_per_gpc = 4,
     .l2_mib = 4,
     .bus_bits = 256,
     .ltcs = 32},
    {.key = "gh100",
     .name = "NVIDIA H100 80GB HBM3",
     .boot_0 = 0x180000a1,
     .boot_42 = 0x180a1000,
     .device = 0x2330,
     .subsystem = 0x16c1,
     .falcons_by_dma = true,
     .fsp = true,
     .format = MMU_FORMAT_3,
     .sm_version = 0x900,
     .gpcs = 8,
     .tpcs_per_gpc = 9,
     .l2_mib = 50,
     .bus_bits = 5120,
     .ltcs = 80},
};

uint32_t bar_region(const struct chip *chip, enum bar bar)
{
    return bar * 2 - (bar && !chip->fsp);
}

const struct chip *chip_known(uint32_t i)
{
    return i < sizeof chips / sizeof chips[0] ? &chips[i] : NULL;
}

const struct chip *chip_by_key(const char *key)
{
    const struct chip *chip;

    for (uint32_t i = 0; (chip = chip_known(i)); i++)
        if (!strcmp(chip->key, key))
            return chip;
    return NULL;
}

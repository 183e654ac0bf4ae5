#include "profiles.h"
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include <string.h>

/* What the cards of a generation, or of a chip, have in common. */
#define TURING                                                                                             \
    .copy_mib_per_ms = 12, .channel_class = TURING_CHANNEL_GPFIFO_A, .architecture = 0x160, .gpcs = 6,     \
    .copy_engines = 5, .cc_major = 7, .cc_minor = 5, .threads_per_sm = 1024, .shared_per_sm_bytes = 65536, \
    .shared_per_block_optin_bytes = 65536
#define AMPERE_100                                                                                           \
    .context_mib = 220, .copy_mib_per_ms = 24, .channel_class = AMPERE_CHANNEL_GPFIFO_A, .chip = CHIP_GA100, \
    .architecture = 0x170, .gpcs = 8, .tpcs_per_gpc = 8, .copy_engines = 10, .cc_major = 8, .sm_count = 108, \
    .threads_per_sm = 2048, .sm_clock_mhz = 1410, .memory_bus_bits = 5120, .l2_kib = 40960,                  \
    .shared_per_sm_bytes = 167936, .shared_per_block_optin_bytes = 166912
#define ADA                                                                                     \
    .copy_mib_per_ms = 24, .channel_class = AMPERE_CHANNEL_GPFIFO_A, .architecture = 0x190,     \
    .tpcs_per_gpc = 6, .copy_engines = 5, .cc_major = 8, .cc_minor = 9, .threads_per_sm = 1536, \
    .shared_per_sm_bytes = 102400, .shared_per_block_optin_bytes = 101376
#define HOPPER                                                                                  \
    .copy_mib_per_ms = 50, .channel_class = HOPPER_CHANNEL_GPFIFO_A, .chip = CHIP_GH100,        \
    .architecture = 0x180, .gpcs = 8, .tpcs_per_gpc = 9, .cc_major = 9, .threads_per_sm = 2048, \
    .shared_per_sm_bytes = 233472, .shared_per_block_optin_bytes = 232448

const struct card_profile card_profiles[] = {
    {
        .key = "v100-16",
        .name = "Tesla V100-SXM2-16GB",
        .memory_mib = 16160,
        .context_mib = 200,
        .copy_mib_per_ms = 12,
        .channel_class = VOLTA_CHANNEL_GPFIFO_A,
        .chip = CHIP_GV100,
        .architecture = 0x140,
        .gpcs = 6,
        .tpcs_per_gpc = 7,
        .copy_engines = 6,
        .pci_device = 0x1db1,
        .pci_subsystem = 0x1212,
        .cc_major = 7,
        .sm_count = 80,
        .threads_per_sm = 2048,
        .sm_clock_mhz = 1530,
        .memory_clock_mhz = 877,
        .memory_bus_bits = 4096,
        .l2_kib = 6144,
        .shared_per_sm_bytes = 98304,
        .shared_per_block_optin_bytes = 98304,
    },
    {
        .key = "a10",
        .name = "NVIDIA A10",
        .memory_mib = 22731,
        .context_mib = 180,
        .copy_mib_per_ms = 24,
        .channel_class = AMPERE_CHANNEL_GPFIFO_A,
        .chip = CHIP_GA102,
        .architecture = 0x170,
        .implementation = 2,
        .gpcs = 7,
        .tpcs_per_gpc = 6,
        .copy_engines = 5,
        .pci_device = 0x2236,
        .pci_subsystem = 0x1482,
        .cc_major = 8,
        .cc_minor = 6,
        .sm_count = 72,
        .threads_per_sm = 1536,
        .sm_clock_mhz = 1695,
        .memory_clock_mhz = 6251,
        .memory_bus_bits = 384,
        .l2_kib = 6144,
        .shared_per_sm_bytes = 102400,
        .shared_per_block_optin_bytes = 101376,
    },
    {
        .key = "a100-40",
        .name = "NVIDIA A100-SXM4-40GB",
        .memory_mib = 40536,
        .pci_device = 0x20b0,
        .pci_subsystem = 0x134f,
        .memory_clock_mhz = 1215,
        AMPERE_100,
    },
    {
        .key = "a100-80",
        .name = "NVIDIA A100-SXM4-80GB",
        .memory_mib = 81251,
        .pci_device = 0x20b2,
        .pci_subsystem = 0x1463,
        .memory_clock_mhz = 1593,
        AMPERE_100,
    },
    {
        .key = "h100",
        .name = "NVIDIA H100 80GB HBM3",
        .memory_mib = 81559,
        .context_mib = 240,
        .copy_engines = 10,
        .pci_device = 0x2330,
        .pci_subsystem = 0x16c1,
        .sm_count = 132,
        .sm_clock_mhz = 1980,
        .memory_clock_mhz = 2619,
        .memory_bus_bits = 5120,
        .l2_kib = 51200,
        HOPPER,
    },
    {
        .key = "h200",
        .name = "NVIDIA H200",
        .memory_mib = 143771,
        .context_mib = 240,
        .copy_engines = 5,
        .pci_device = 0x2335,
        .pci_subsystem = 0x18bf,
        .sm_count = 132,
        .sm_clock_mhz = 1980,
        .memory_clock_mhz = 3201,
        .memory_bus_bits = 6016,
        .l2_kib = 61440,
        HOPPER,
    },
    {
        .key = "titan-rtx",
        .name = "NVIDIA TITAN RTX",
        .memory_mib = 24220,
        .context_mib = 170,
        .chip = CHIP_TU102,
        .implementation = 2,
        .tpcs_per_gpc = 6,
        .pci_device = 0x1e02,
        .pci_subsystem = 0x12a3,
        .sm_count = 72,
        .sm_clock_mhz = 1770,
        .memory_clock_mhz = 7001,
        .memory_bus_bits = 384,
        .l2_kib = 6144,
        TURING,
    },
    {
        .key = "t4",
        .name = "Tesla T4",
        .memory_mib = 15109,
        .context_mib = 160,
        .chip = CHIP_TU104,
        .implementation = 4,
        .tpcs_per_gpc = 4,
        .pci_device = 0x1eb8,
        .pci_subsystem = 0x12a2,
        .sm_count = 40,
        .sm_clock_mhz = 1590,
        .memory_clock_mhz = 5001,
        .memory_bus_bits = 256,
        .l2_kib = 4096,
        TURING,
    },
    {
        .key = "l4",
        .name = "NVIDIA L4",
        .memory_mib = 23034,
        .context_mib = 190,
        .chip = CHIP_AD104,
        .implementation = 4,
        .gpcs = 5,
        .pci_device = 0x27b8,
        .pci_subsystem = 0x16ca,
        .sm_count = 58,
        .sm_clock_mhz = 2040,
        .memory_clock_mhz = 6251,
        .memory_bus_bits = 192,
        .l2_kib = 49152,
        ADA,
    },
    {
        .key = "l40",
        .name = "NVIDIA L40",
        .memory_mib = 46068,
        .context_mib = 200,
        .chip = CHIP_AD102,
        .implementation = 2,
        .gpcs = 12,
        .pci_device = 0x26b5,
        .pci_subsystem = 0x169d,
        .sm_count = 142,
        .sm_clock_mhz = 2490,
        .memory_clock_mhz = 9001,
        .memory_bus_bits = 384,
        .l2_kib = 98304,
        ADA,
    },
    {
        .key = "rtx-4090",
        .name = "NVIDIA GeForce RTX 4090",
        .memory_mib = 24564,
        .context_mib = 200,
        .chip = CHIP_AD102,
        .implementation = 2,
        .gpcs = 12,
        .pci_device = 0x2684,
        .pci_subsystem = 0x165b,
        .sm_count = 128,
        .sm_clock_mhz = 2520,
        .memory_clock_mhz = 10501,
        .memory_bus_bits = 384,
        .l2_kib = 73728,
        ADA,
    },
    {
        .key = "b200",
        .name = "NVIDIA B200",
        .memory_mib = 183359,
        .context_mib = 250,
        .copy_mib_per_ms = 50,
        .channel_class = BLACKWELL_CHANNEL_GPFIFO_A,
        .chip = CHIP_GB100,
        .architecture = 0x1a0,
        .gpcs = 8,
        .tpcs_per_gpc = 10,
        .copy_engines = 20,
        .pci_device = 0x2901,
        .pci_subsystem = 0x1999,
        .cc_major = 10,
        .sm_count = 148,
        .threads_per_sm = 2048,
        .sm_clock_mhz = 1965,
        .memory_clock_mhz = 3996,
        .memory_bus_bits = 8192,
        .l2_kib = 129536,
        .shared_per_sm_bytes = 233472,
        .shared_per_block_optin_bytes = 232448,
    },
    {
        .key = "rtx-5090",
        .name = "NVIDIA GeForce RTX 5090",
        .memory_mib = 32607,
        .context_mib = 230,
        .copy_mib_per_ms = 50,
        .channel_class = BLACKWELL_CHANNEL_GPFIFO_B,
        .chip = CHIP_GB202,
        .architecture = 0x1b0,
        .implementation = 2,
        .gpcs = 12,
        .tpcs_per_gpc = 8,
        .copy_engines = 8,
        .pci_device = 0x2b85,
        .pci_subsystem = 0x2057,
        .cc_major = 12,
        .sm_count = 170,
        .threads_per_sm = 1536,
        .sm_clock_mhz = 2407,
        .memory_clock_mhz = 14001,
        .memory_bus_bits = 512,
        .l2_kib = 98304,
        .shared_per_sm_bytes = 102400,
        .shared_per_block_optin_bytes = 101376,
    },
};
const size_t card_profile_count = sizeof card_profiles / sizeof card_profiles[0];

const struct card_profile *card_profile_by_key(const char *key, size_t length)
{
    for (size_t i = 0; i < card_profile_count; i++)
        if (strlen(card_profiles[i].key) == length && !memcmp(card_profiles[i].key, key, length))
            return &card_profiles[i];
    return NULL;
}

const struct card_profile *card_profile_by_pci(uint16_t pci_device)
{
    for (size_t i = 0; i < card_profile_count; i++)
        if (card_profiles[i].pci_device == pci_device)
            return &card_profiles[i];
    return NULL;
}

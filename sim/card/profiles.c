#include "profiles.h"
#include "../../native_sched/boundary/rm_abi.h"
#include <string.h>

const struct card_profile card_profiles[] = {
    {
        .key = "v100-16",
        .name = "Tesla V100-SXM2-16GB",
        .memory_mib = 16160,
        .context_mib = 200,
        .copy_context_mib = 2,
        .copy_mib_per_ms = 12,
        .launch_us = 10,
        .channel_class = VOLTA_CHANNEL_GPFIFO_A,
        .architecture = 0x140,
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
        .copy_context_mib = 2,
        .copy_mib_per_ms = 24,
        .launch_us = 10,
        .channel_class = AMPERE_CHANNEL_GPFIFO_A,
        .architecture = 0x170,
        .implementation = 2,
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
        .context_mib = 220,
        .copy_context_mib = 2,
        .copy_mib_per_ms = 24,
        .launch_us = 10,
        .channel_class = AMPERE_CHANNEL_GPFIFO_A,
        .architecture = 0x170,
        .pci_device = 0x20b0,
        .pci_subsystem = 0x134f,
        .cc_major = 8,
        .sm_count = 108,
        .threads_per_sm = 2048,
        .sm_clock_mhz = 1410,
        .memory_clock_mhz = 1215,
        .memory_bus_bits = 5120,
        .l2_kib = 40960,
        .shared_per_sm_bytes = 167936,
        .shared_per_block_optin_bytes = 166912,
    },
    {
        .key = "a100-80",
        .name = "NVIDIA A100-SXM4-80GB",
        .memory_mib = 81251,
        .context_mib = 220,
        .copy_context_mib = 2,
        .copy_mib_per_ms = 24,
        .launch_us = 10,
        .channel_class = AMPERE_CHANNEL_GPFIFO_A,
        .architecture = 0x170,
        .pci_device = 0x20b2,
        .pci_subsystem = 0x1463,
        .cc_major = 8,
        .sm_count = 108,
        .threads_per_sm = 2048,
        .sm_clock_mhz = 1410,
        .memory_clock_mhz = 1593,
        .memory_bus_bits = 5120,
        .l2_kib = 40960,
        .shared_per_sm_bytes = 167936,
        .shared_per_block_optin_bytes = 166912,
    },
    {
        .key = "h200",
        .name = "NVIDIA H200",
        .memory_mib = 143771,
        .context_mib = 240,
        .copy_context_mib = 2,
        .copy_mib_per_ms = 50,
        .launch_us = 10,
        .channel_class = HOPPER_CHANNEL_GPFIFO_A,
        .architecture = 0x180,
        .pci_device = 0x2335,
        .pci_subsystem = 0x18be,
        .cc_major = 9,
        .sm_count = 132,
        .threads_per_sm = 2048,
        .sm_clock_mhz = 1980,
        .memory_clock_mhz = 3201,
        .memory_bus_bits = 6144,
        .l2_kib = 51200,
        .shared_per_sm_bytes = 233472,
        .shared_per_block_optin_bytes = 232448,
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
